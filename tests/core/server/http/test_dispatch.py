"""Dispatch by verb, prefix and port, colliding protocols, and offline mode."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from litestar import Response
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.protocol import Endpoint, HttpListener, HttpRequest, Permission, json_response
from app.core.server.http.asgi import ServedOperations, create_app, create_listener_app
from app.core.server.http.dispatch import RouteConflictError, create_handlers
from tasks.inference.error import InferenceError
from tests.support.servers.grpc_server import build_engine


class VerbProtocol(HttpListener):
    """Serve paths that end in verbs; as a listener, echo method and path."""

    name = "verbs"
    title = "Verbs"

    def __init__(self, *verbs: str | None) -> None:
        self._verbs = verbs

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def handler_of(verb: str | None) -> Callable[[HttpRequest], Awaitable[Response[bytes]]]:
            async def handle_request(request: HttpRequest) -> Response[bytes]:
                return json_response(f'["{verb}","{request.path_params["target"]}"]'.encode())

            return handle_request

        path = "/v1/things/{target:str}"
        return [Endpoint(method="POST", path=path, verb=verb, handle=handler_of(verb)) for verb in self._verbs]

    def error_body(self, error: InferenceError, /) -> bytes:
        return str(error).encode()

    def error_response(self, error: InferenceError, /) -> HttpResponse:
        return HttpResponse(content=self.error_body(error))

    def permission(self, request: HttpRequest, /) -> Permission:
        return "infer"

    def handler(self, engine: Engine, /) -> Callable[[HttpRequest], Awaitable[Response[Any]]]:
        async def answer(request: HttpRequest) -> Response[bytes]:
            return json_response(f'["{request.method}","{request.url.path}"]'.encode(), status=418)

        return answer


def test_verb_of_a_path_selects_the_endpoint() -> None:
    engine = build_engine(("detector",))
    with TestClient(create_app(engine, [VerbProtocol("drive", "park")], CollectorRegistry(), 1000)) as client:
        assert client.post("/v1/things/a:drive").json() == ["drive", "a"]
        assert client.post("/v1/things/a:b:park").json() == ["park", "a:b"]
        for path in ("/v1/things/a", "/v1/things/a:fly", "/v1/things/a:", "/v1/things/a:drive:"):
            response = client.post(path)
            assert response.status_code == 404
            assert response.text == "Expected the name of a model and :drive or :park behind it"
    (served,) = engine.provided.find(ServedOperations)
    assert [endpoint.verb for endpoint in served.by_tag()["verbs"]] == ["drive", "park"]


def test_two_protocols_with_the_same_path_and_verb_collide() -> None:
    engine = build_engine(("detector",))
    create_handlers([VerbProtocol("drive"), VerbProtocol("park")], engine)
    with pytest.raises(RouteConflictError, match=r"verbs and verbs both serve POST /v1/things/\{target:str\}:park"):
        create_handlers([VerbProtocol("drive", "park"), VerbProtocol("park")], engine)


def test_a_listener_answers_every_method_and_path() -> None:
    with TestClient(create_listener_app(build_engine(("detector",)), VerbProtocol(), 1000)) as client:
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            for path in ("/", "/v1/x:y", "/a/b/c"):
                response = client.request(method, path)
                assert response.status_code == 418
                assert response.json() == [method, path]


class PrefixOwner(VerbProtocol):
    """Own a path prefix."""

    prefixes = ("/v1/things",)

    def routing_error(self, status: int, message: str, /) -> bytes:
        return f"[{status}]".encode()


def test_routing_errors_under_a_prefix_come_from_the_protocol_that_owns_it() -> None:
    with TestClient(
        create_app(build_engine(("detector",)), [PrefixOwner("drive")], CollectorRegistry(), 1000)
    ) as client:
        for method, path, status in (
            ("GET", "/v1/things/a", 405),
            ("POST", "/v1/things", 404),
            ("GET", "/v1/things/a/b", 404),
        ):
            response = client.request(method, path)
            assert (response.status_code, response.text) == (status, f"[{status}]")
            assert response.headers["content-type"] == "application/json"
        for path in ("/v1/thingses", "/v1", "/x/v1/things"):
            assert client.get(path).json() == {"error": f"Nothing is served at {path}"}
