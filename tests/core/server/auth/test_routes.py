"""Permissions of every route and gRPC method. A new one must be added to a table here."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from litestar import Litestar, Response, get
from litestar.routes import HTTPRoute
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.protocols.protocol import PERMISSIONS, Endpoint, HttpProtocol, HttpRequest, Permission, json_response
from app.core.server.auth.grpc_access import GrpcAccess, required_permissions
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.asgi import ServedOperations, create_app
from app.plugins.grps.servicer import GrpsGrpc
from app.plugins.triton.extensions import UNSUPPORTED
from tasks.inference.error import InferenceError
from tests.support.protocol_cases import PROTOCOL_CASES
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.auth_apps import (
    ADMIN_KEY,
    INFER_KEY,
    LABEL_KEY,
    READ_KEY,
    access_with_keys,
    authenticated_app,
    bearer_header,
    http_client,
)  # fmt: skip
from tests.support.servers.grpc_server import GrpcTestClient, build_engine, run_grpc_server

OPEN = {
    "GET /health",
    "GET /healthz",
    "GET /ready",
    # Without the infer permission it returns only {"status": "alive"}.
    "GET /",
}
READ = {
    "GET /metrics",
    "GET /openapi.json",
    "GET /schema",
    "GET /schema/openapi.json",
    "GET /guide/{path:path}",
    "GET /grps/v1/monitor/metrics",
    "GET /grps/v1/monitor/series",
    "GET /inferences",
    "GET /inferences/{id:str}",
    "GET /inferences/{id:str}/image",
    "GET /page/{name:str}",
    "GET /page/models.json",
    "GET /page/samples/{name:str}",
}
INFER = {"POST /page/preview"}
"""The routes of no protocol. Those of protocols are in `PROTOCOL_CASES`."""

KSERVE, GRPS, HEALTH = "inference.GRPCInferenceService", "grps.protos.v1.GrpsService", "grpc.health.v1.Health"
PREDICTION, MODEL = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
CALLS = {
    REFLECTION: "read",
    **{f"/{KSERVE}/{name}": "infer" for _, names in UNSUPPORTED.values() for name in names},
    **{
        f"/{service}/{name}": permission
        for service, permission, names in (
            (HEALTH, "open", "Check Watch"),
            (KSERVE, "open", "ServerLive ServerReady"),
            (KSERVE, "read", "ModelStatistics RepositoryIndex"),
            (KSERVE, "admin", "RepositoryModelLoad RepositoryModelUnload"),
            (KSERVE, "infer", "ServerMetadata ModelReady ModelMetadata ModelConfig ModelInfer ModelStreamInfer"),
            (GRPS, "open", "CheckLiveness CheckReadiness"),
            (GRPS, "admin", "Online Offline"),
            (GRPS, "infer", "Predict PredictStreaming ServerMetadata ModelMetadata"),
            (PREDICTION, "infer", "Predict Classify Regress MultiInference GetModelMetadata"),
            (MODEL, "infer", "GetModelStatus"),
            (MODEL, "admin", "HandleReloadConfigRequest"),
        )
        for name in names.split()
    },
}

KEY_FOR = {"infer": INFER_KEY, "read": READ_KEY, "label": LABEL_KEY, "admin": ADMIN_KEY}
TABLES = {"open": OPEN, "read": READ, "infer": INFER}
PERMISSION_OF = {route: permission for permission, table in TABLES.items() for route in table} | {
    route: permission for case in PROTOCOL_CASES.values() for route, permission in case.permissions.items()
}
CASES = sorted(PERMISSION_OF.items(), key=lambda case: (case[1], case[0]))
PROTECTED = [case for case in CASES if case[1] != "open"]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Litestar:
    return authenticated_app(access_with_keys(tmp_path_factory.mktemp("keys")))


@pytest.fixture(scope="module")
def client(app: Litestar) -> TestClient[Litestar]:
    return http_client(app)


def routes_of(app: Litestar) -> Iterator[str]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                yield from (f"{method} {route.path}" for method in handler.http_methods - {"OPTIONS"})


def status_of_route(client: TestClient[Litestar], route: str, key: str | None) -> int:
    """Return the status of a request for a route."""
    method, _, path = route.partition(" ")
    path = path.replace("{version:str}", "1").replace("{id:str}", "1")
    path = path.replace("{target:str}", "detector:predict" if route == "POST /v1/models/{target:str}" else "detector")
    path = path.replace("{name:str}", "page.css" if path.startswith("/page/{") else "detector")
    headers = bearer_header(key) if key else {}
    return client.request(method, path, headers=headers).status_code


def test_every_route_is_in_one_table(app: Litestar) -> None:
    assert sorted(routes_of(app)) == sorted(route for route, _ in CASES)


@pytest.mark.parametrize(("route", "permission"), PROTECTED)
def test_route_requires_its_permission(client: TestClient[Litestar], route: str, permission: str) -> None:
    assert status_of_route(client, route, None) == 401
    assert status_of_route(client, route, "a-key-that-is-none") == 401
    for other in PERMISSIONS:
        if other != permission:
            assert status_of_route(client, route, KEY_FOR[other]) == 403, other
    assert status_of_route(client, route, KEY_FOR[permission]) not in (401, 403)


@pytest.mark.parametrize("route", [route for route, permission in CASES if permission == "open"])
def test_open_routes_ignore_missing_and_wrong_keys(client: TestClient[Litestar], route: str) -> None:
    assert status_of_route(client, route, None) == status_of_route(client, route, "a-key-that-is-none")
    assert status_of_route(client, route, None) in (200, 503)


def test_routes_of_chariot_v2_require_the_infer_permission(tmp_path: Path) -> None:
    app = authenticated_app(access_with_keys(tmp_path), protocol="chariot-v2")
    assert set(routes_of(app)) <= {route for route, _ in CASES}
    client = http_client(app)
    for route in ("POST /infer", "POST /v2/models/{target:str}/infer"):
        assert [status_of_route(client, route, key) for key in (None, READ_KEY, ADMIN_KEY)] == [401, 403, 403]
        assert status_of_route(client, route, INFER_KEY) not in (401, 403)


def test_route_without_permission_requires_admin(tmp_path: Path) -> None:
    @get("/forgotten", sync_to_thread=False)
    def handle() -> str:
        return "here"

    app = Litestar([handle], guards=[HttpAccess(access_with_keys(tmp_path)).guard], openapi_config=None)
    with TestClient(app) as client:
        assert client.get("/forgotten", headers=bearer_header(INFER_KEY)).status_code != 200
        assert client.get("/forgotten", headers=bearer_header(ADMIN_KEY)).text == "here"


class ProtocolWithoutPermission(HttpProtocol):
    """Declare an endpoint without a permission."""

    name = "forgetful"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        async def answer(_: HttpRequest) -> Response[bytes]:
            return json_response(b'"here"')

        return [Endpoint(method="POST", path="/forgotten", handle=answer)]

    def error_body(self, error: InferenceError, /) -> bytes:
        return str(error).encode()


def test_endpoint_without_permission_requires_admin(tmp_path: Path) -> None:
    access = HttpAccess(access_with_keys(tmp_path))
    engine = build_engine(("detector",))
    app = create_app(engine, [ProtocolWithoutPermission()], CollectorRegistry(), 1000, access=access)
    with TestClient(app) as client:
        for key in (INFER_KEY, READ_KEY):
            response = client.post("/forgotten", headers=bearer_header(key))
            assert (response.status_code, "permission admin" in response.text) == (403, True)
        assert client.post("/forgotten", headers=bearer_header(ADMIN_KEY)).text == '"here"'
    (served,) = engine.provided.find(ServedOperations)
    assert [endpoint.permission for endpoint in served.by_tag()["forgetful"]] == ["admin"]


def test_grpc_method_without_permission_requires_admin() -> None:
    class GrpcWithoutPermission(GrpsGrpc):
        permissions: Mapping[str, Permission] = {"CheckLiveness": "open"}

    needed_permissions = required_permissions([GrpcWithoutPermission()])
    assert needed_permissions["/grps.protos.v1.GrpsService/Predict"] == "admin"
    assert needed_permissions["/grps.protos.v1.GrpsService/CheckLiveness"] == "open"


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Generator[GrpcTestClient]:
    interceptor = GrpcAccess(access_with_keys(tmp_path_factory.mktemp("keys")), GRPC_PROTOCOLS)
    with run_grpc_server(build_engine(("detector",)), interceptors=[interceptor]) as peer:
        yield peer


def status_of(peer: GrpcTestClient, method: str, key: str | None) -> grpc.StatusCode:
    metadata = [("authorization", f"Bearer {key}")] if key else []
    call: Any = peer.channel.unary_unary(method)
    if "Reflection" in method:
        call = peer.channel.stream_unary(method)
    elif "Stream" in method:
        call = peer.channel.unary_stream(method)
    try:
        result: Any = call(iter([b""]) if "Reflection" in method else b"", metadata=metadata, timeout=30)
        if "Stream" in method:
            list(result)
    except grpc.RpcError as error:
        rpc_error: Any = error
        return rpc_error.code()
    return grpc.StatusCode.OK


REFUSED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}


@pytest.mark.parametrize(("method", "permission"), sorted(CALLS.items()))
def test_grpc_method_requires_its_permission(peer: GrpcTestClient, method: str, permission: str) -> None:
    if permission == "open":
        if not method.endswith("Watch"):
            assert status_of(peer, method, None) is status_of(peer, method, "a-key-that-is-none") is grpc.StatusCode.OK
        return
    assert status_of(peer, method, None) is grpc.StatusCode.UNAUTHENTICATED
    assert status_of(peer, method, "a-key-that-is-none") is grpc.StatusCode.UNAUTHENTICATED
    for other in PERMISSIONS:
        if other != permission:
            assert status_of(peer, method, KEY_FOR[other]) is grpc.StatusCode.PERMISSION_DENIED, other
    assert status_of(peer, method, KEY_FOR[permission]) not in REFUSED


def test_every_grpc_method_is_in_the_table(peer: GrpcTestClient) -> None:
    assert dict(required_permissions(GRPC_PROTOCOLS)) == CALLS
    request = ServerReflectionRequest(list_services="").SerializeToString()
    call = peer.channel.stream_stream(REFLECTION)
    answers = call(iter([request]), metadata=[("x-api-key", READ_KEY)], timeout=30)
    services = ServerReflectionResponse.FromString(next(answers)).list_services_response.service
    assert {service.name for service in services} == {method.split("/")[1] for method in CALLS}
