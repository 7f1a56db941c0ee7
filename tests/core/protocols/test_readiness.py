"""Test that every protocol reports readiness from the online flag and the model states."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.server.http.asgi import create_app
from app.plugins.grps.proto import message_class
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.protocols import main_port_protocols
from tests.support.servers.apps import load_test_model
from tests.support.servers.grpc_server import GrpcTestClient, build_engine, message, run_grpc_server

GRPS: Any = message_class("grps.protos.v1.GrpsMessage")
IMAGE = encode_image(rectangle())
MODEL = "detector"
CHARIOT_PROTOCOLS = ("chariot-v2-kserve", "chariot-v2")

READY_PATHS = (
    "/ready",
    f"/v2/models/m-{MODEL}/ready",
    "/v2/health/ready",
    f"/v2/models/{MODEL}/ready",
    f"/v2/models/{MODEL}/versions/1/ready",
    f"/v1/models/{MODEL}",
    "/grps/v1/health/ready",
)
"""Every readiness path over HTTP."""

LIVE_PATHS = ("/", "/health", "/v2/health/live", "/grps/v1/health/live")

Clients = Mapping[str, httpx.Client]
Served = tuple[Engine, Clients, GrpcTestClient]


def served(*, loaded: bool) -> Iterator[Served]:
    engine = build_engine((MODEL,), loaded=loaded)
    with ExitStack() as stack:
        apps = {
            name: create_app(engine, main_port_protocols(name), CollectorRegistry(), 2_000_000)
            for name in CHARIOT_PROTOCOLS
        }
        clients = {name: stack.enter_context(TestClient(app)) for name, app in apps.items()}
        yield engine, clients, stack.enter_context(run_grpc_server(engine))


@pytest.fixture
def ready() -> Iterator[Served]:
    yield from served(loaded=True)


@pytest.fixture
def loading() -> Iterator[Served]:
    yield from served(loaded=False)


def grpc_readiness(peer: GrpcTestClient) -> Mapping[str, bool]:
    """Return every readiness over gRPC."""
    data = peer.call_bytes("/grps.protos.v1.GrpsService/CheckReadiness", b"")
    health = [
        HealthCheckResponse.FromString(
            peer.call_bytes("/grpc.health.v1.Health/Check", HealthCheckRequest(service=name).SerializeToString())
        ).status
        for name in ("", "inference.GRPCInferenceService", "grps.protos.v1.GrpsService")
    ]
    return {
        "ServerReady": peer.call("ServerReady").ready,
        "ModelReady": peer.call("ModelReady", message("ModelReadyRequest", name=MODEL)).ready,
        "CheckReadiness": GRPS.FromString(data).status.code == 200,
        "Health": all(status == HealthCheckResponse.SERVING for status in health),
    }


def http_readiness(clients: Clients) -> Mapping[tuple[str, str], int]:
    """Return the status of every readiness path over HTTP."""
    return {(name, path): clients[name].get(path).status_code for name in CHARIOT_PROTOCOLS for path in READY_PATHS}


def switch(served: Served, verb: str, method: Callable[[Served, str], None]) -> None:
    method(served, verb)
    for name, client in served[1].items():
        assert {path: client.get(path).status_code for path in LIVE_PATHS} == dict.fromkeys(LIVE_PATHS, 200), name


def switch_by_rest(served: Served, verb: str) -> None:
    assert served[1][CHARIOT_PROTOCOLS[0]].post(f"/grps/v1/health/{verb.lower()}").status_code == 200


def switch_by_grpc(served: Served, verb: str) -> None:
    assert GRPS.FromString(served[2].call_bytes(f"/grps.protos.v1.GrpsService/{verb}", b"")).status.code == 200


def assert_answers(served: Served) -> None:
    """Assert that every protocol answers a request."""
    _, clients, peer = served
    image_base64 = encode_base64(IMAGE)
    for client in clients.values():
        body = {"inputs": [image_input(image_base64)]}
        assert client.post(f"/v2/models/{MODEL}/infer", json=body).status_code == 200
        assert (
            client.post(f"/v1/models/{MODEL}:predict", json={"instances": [{"b64": image_base64}]}).status_code == 200
        )
        assert client.post("/grps/v1/infer/predict", json={"str_data": image_base64}).status_code == 200
    assert clients["chariot-v2-kserve"].post("/infer", json={"inputs": [image_input(image_base64)]}).status_code == 200
    assert clients["chariot-v2"].post("/infer", json={"input": image_base64}).status_code == 200
    data = GRPS(bin_data=IMAGE).SerializeToString()
    assert GRPS.FromString(peer.call_bytes("/grps.protos.v1.GrpsService/Predict", data)).status.code == 200


@pytest.mark.parametrize("method", [switch_by_rest, switch_by_grpc])
def test_online_flag_changes_readiness_but_not_liveness_or_inference(
    ready: Served, method: Callable[[Served, str], None]
) -> None:
    for verb, status in (("Online", 200), ("Offline", 503), ("Offline", 503), ("Online", 200)):
        switch(ready, verb, method)
        assert http_readiness(ready[1]) == dict.fromkeys(http_readiness(ready[1]), status)
        assert grpc_readiness(ready[2]) == dict.fromkeys(grpc_readiness(ready[2]), status == 200)
        assert_answers(ready)


def test_server_starts_online_and_is_ready_once_its_models_are_loaded(loading: Served) -> None:
    engine, clients, peer = loading
    assert engine.online
    assert set(http_readiness(clients).values()) == {503}
    assert not any(grpc_readiness(peer).values())
    for client in clients.values():
        assert client.get("/ready").json() == {"status": "not ready", "error": "detector/1: not loaded yet"}
    switch_by_grpc(loading, "Online")
    assert set(http_readiness(clients).values()) == {503}
    (registration,) = engine.registry.registrations
    engine.registry.load(registration.source, load_test_model)
    assert set(http_readiness(clients).values()) == {200}
    assert all(grpc_readiness(peer).values())
