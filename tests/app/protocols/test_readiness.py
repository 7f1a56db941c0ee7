"""The operator's flag and the models' states, as every protocol tells them to whoever balances the load."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.engine import Engine
from app.proto import message_class
from app.protocols import protocols_beside
from app.server.asgi import create_app
from tests.support.chariot import image_input
from tests.support.grpc_server import Peer, built, message, serving_grpc
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import load_any

GRPS: Any = message_class("grps.protos.v1.GrpsMessage")
PICTURE = encoded(rectangle())
MODEL = "detector"
CHARIOT = ("chariot-v2-kserve", "chariot-v2")

READY = (
    "/ready",
    f"/v2/models/m-{MODEL}/ready",
    "/v2/health/ready",
    f"/v2/models/{MODEL}/ready",
    f"/v2/models/{MODEL}/versions/1/ready",
    f"/v1/models/{MODEL}",
    "/grps/v1/health/ready",
)
"""Everything that tells over HTTP whether to send requests."""

LIVE = ("/", "/health", "/v2/health/live", "/grps/v1/health/live")

Clients = Mapping[str, httpx.Client]
Served = tuple[Engine, Clients, Peer]


def served(*, loaded: bool) -> Iterator[Served]:
    engine = built((MODEL,), loaded=loaded)
    with ExitStack() as stack:
        apps = {each: create_app(engine, protocols_beside(each), CollectorRegistry(), 2_000_000) for each in CHARIOT}
        clients = {name: stack.enter_context(TestClient(app)) for name, app in apps.items()}
        yield engine, clients, stack.enter_context(serving_grpc(engine))


@pytest.fixture
def ready() -> Iterator[Served]:
    yield from served(loaded=True)


@pytest.fixture
def loading() -> Iterator[Served]:
    yield from served(loaded=False)


def over_grpc(peer: Peer) -> Mapping[str, bool]:
    """Every readiness over gRPC."""
    data = peer.bytes("/grps.protos.v1.GrpsService/CheckReadiness", b"")
    health = [
        HealthCheckResponse.FromString(
            peer.bytes("/grpc.health.v1.Health/Check", HealthCheckRequest(service=name).SerializeToString())
        ).status
        for name in ("", "inference.GRPCInferenceService", "grps.protos.v1.GrpsService")
    ]
    return {
        "ServerReady": peer.call("ServerReady").ready,
        "ModelReady": peer.call("ModelReady", message("ModelReadyRequest", name=MODEL)).ready,
        "CheckReadiness": GRPS.FromString(data).status.code == 200,
        "Health": all(each == HealthCheckResponse.SERVING for each in health),
    }


def over_http(clients: Clients) -> Mapping[tuple[str, str], int]:
    """The status of every readiness over HTTP."""
    return {(name, path): clients[name].get(path).status_code for name in CHARIOT for path in READY}


def turned(served: Served, verb: str, how: Callable[[Served, str], None]) -> None:
    how(served, verb)
    for name, client in served[1].items():
        assert {path: client.get(path).status_code for path in LIVE} == dict.fromkeys(LIVE, 200), name


def by_rest(served: Served, verb: str) -> None:
    assert served[1][CHARIOT[0]].post(f"/grps/v1/health/{verb.lower()}").status_code == 200


def by_grpc(served: Served, verb: str) -> None:
    assert GRPS.FromString(served[2].bytes(f"/grps.protos.v1.GrpsService/{verb}", b"")).status.code == 200


def answers(served: Served) -> None:
    """A request over every protocol is answered."""
    _, clients, peer = served
    picture = base64_text(PICTURE)
    for client in clients.values():
        asked = {"inputs": [image_input(picture)]}
        assert client.post(f"/v2/models/{MODEL}/infer", json=asked).status_code == 200
        assert client.post(f"/v1/models/{MODEL}:predict", json={"instances": [{"b64": picture}]}).status_code == 200
        assert client.post("/grps/v1/infer/predict", json={"str_data": picture}).status_code == 200
    assert clients["chariot-v2-kserve"].post("/infer", json={"inputs": [image_input(picture)]}).status_code == 200
    assert clients["chariot-v2"].post("/infer", json={"input": picture}).status_code == 200
    data = GRPS(bin_data=PICTURE).SerializeToString()
    assert GRPS.FromString(peer.bytes("/grps.protos.v1.GrpsService/Predict", data)).status.code == 200


@pytest.mark.parametrize("how", [by_rest, by_grpc])
def test_one_flag_turns_every_readiness_and_nothing_else(ready: Served, how: Callable[[Served, str], None]) -> None:
    for verb, status in (("Online", 200), ("Offline", 503), ("Offline", 503), ("Online", 200)):
        turned(ready, verb, how)
        assert over_http(ready[1]) == dict.fromkeys(over_http(ready[1]), status)
        assert over_grpc(ready[2]) == dict.fromkeys(over_grpc(ready[2]), status == 200)
        answers(ready)


def test_a_server_is_online_from_its_start_and_ready_once_its_models_are(loading: Served) -> None:
    engine, clients, peer = loading
    assert engine.online
    assert set(over_http(clients).values()) == {503}
    assert not any(over_grpc(peer).values())
    by_grpc(loading, "Online")
    assert set(over_http(clients).values()) == {503}
    (registration,) = engine.registry.registrations
    engine.registry.load(registration.source, load_any)
    assert set(over_http(clients).values()) == {200}
    assert all(over_grpc(peer).values())
