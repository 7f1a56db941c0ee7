"""HEAD is answered as GET is, without the body."""

from collections.abc import Iterator

import pytest
from litestar import Litestar, get
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.protocols import LISTENERS, protocols_beside
from app.server.asgi import create_app, create_listener_app
from app.server.head import AnsweringHead
from tests.support.grpc_server import built
from tests.support.served import ECHOES

MODEL = next(iter(ECHOES))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    app = create_app(built((MODEL,)), protocols_beside("chariot-v2-kserve"), CollectorRegistry(), 2**20)
    with TestClient(app) as opened:
        yield opened


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/health",
        "/healthz",
        "/docs",
        "/openapi.json",
        "/ready",
        "/metrics",
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
        f"/v2/models/{MODEL}",
        f"/v2/models/{MODEL}/ready",
        f"/v1/models/{MODEL}",
        "/grps/v1/health/live",
        "/grps/v1/health/ready",
        "/v2/models/nobody/ready",
        "/nowhere",
    ],
)
def test_head_has_the_status_and_the_type_of_get_and_no_body(client: TestClient[Litestar], path: str) -> None:
    wanted, answered = client.get(path), client.head(path)
    assert answered.status_code == wanted.status_code != 405
    assert answered.headers.get("content-type") == wanted.headers.get("content-type")
    assert answered.content == b""


def test_readiness_that_is_off_is_off_for_head_too() -> None:
    engine = built((MODEL,), loaded=False)
    with TestClient(create_app(engine, protocols_beside("chariot-v2-kserve"), CollectorRegistry(), 2**20)) as client:
        assert client.head("/ready").status_code == 503
        assert client.head("/health").status_code == 200


@pytest.mark.parametrize("path", ["/inferences", "//inferences", "/page/events", "//page/events", "/page//events"])
def test_what_may_never_end_is_not_begun(path: str) -> None:
    @get(["/inferences", "/page/events", "/metrics"], sync_to_thread=False)
    def answer() -> str:
        return "begun"

    with TestClient(AnsweringHead([answer], openapi_config=None)) as client:
        assert client.get(f"http://testserver.local{path}").text == "begun"
        assert client.head(f"http://testserver.local{path}").status_code == 405
        assert client.head("http://testserver.local//metrics").status_code == 200


def test_a_protocol_on_a_port_of_its_own_says_itself_what_becomes_of_head() -> None:
    with TestClient(create_listener_app(built((MODEL,)), LISTENERS[0], 2**20)) as client:
        assert client.get(f"/v1/models/{MODEL}").status_code == 200
        # As TensorFlow Serving does.
        answered = client.head(f"/v1/models/{MODEL}")
        assert (answered.status_code, answered.content) == (400, b"")
