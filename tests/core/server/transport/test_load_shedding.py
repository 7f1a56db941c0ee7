"""Requests that an overloaded server refuses by their headers."""

import asyncio
import json
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.observers.metrics import Metrics
from app.core.protocols.protocol import HttpProtocol
from app.core.server.transport.load_shedding import LoadShedder, Route, RouteTable, inference_routes
from app.core.settings.model import ModelSettings, ModelSource
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.task import TaskType
from tests.support.models.fake_models import load_fake_model
from tests.support.models.scripted_model import EventRecorder
from tests.support.protocols import LISTENERS, PROTOCOLS, main_port_protocols
from tests.support.servers.http_connections import HttpTestServer, parse_responses, read_until_closed, run_http_server

MIB = 1024 * 1024


class FakeRoute:
    """Refuse requests while `is_refusing` is set, and record the report."""

    def __init__(self) -> None:
        self.is_refusing = True
        self.arriving = 0
        self.reported: Future[tuple[str, str, int]] = Future()

    @property
    def route(self) -> Route:
        return Route(
            method=b"POST",
            pattern="/full/([^/%]+)",
            overload=self._overload,
            body=lambda error: json.dumps({"error": error.message}).encode(),
            report=lambda _message, target, request_id, count: self.reported.set_result((target, request_id, count)),
            track_arrival=self._track_arrival,
        )

    def _overload(self, target: str) -> InferenceError | None:
        if not self.is_refusing:
            return None
        return InferenceError(ErrorKind.OVERLOADED, f"{target} is full", retry_after=7)

    def _track_arrival(self) -> Any:
        self.arriving += 1

        def arrived() -> None:
            self.arriving -= 1

        return arrived


@contextmanager
def overloaded_server() -> Generator[tuple[HttpTestServer, FakeRoute]]:
    fake_route = FakeRoute()
    with run_http_server() as server:
        server.listener.routes = RouteTable([fake_route.route])
        yield server, fake_route


def request(size: int, *fields: str, body: bytes = b"", path: str = "/full/m") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {size}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def read_response(connection: Any) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the next response, and check that no bytes follow."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines)
    while len(body) < int(fields["content-length"]):
        body += connection.recv(65536)
    return int(status.split(" ")[1]), fields, body


def test_request_is_refused_before_its_body_is_sent() -> None:
    with overloaded_server() as (server, fake_route), closing(server.connect()) as connection:
        connection.sendall(request(79_000, "X-Request-ID: mine", "Chariot-Inference-Base-ID: base"))
        status, fields, body = read_response(connection)
        assert (status, json.loads(body)) == (429, {"error": "m is full"})
        assert (fields["retry-after"], fields["x-request-id"]) == ("7", "mine")
        assert fields["chariot-inference-base-id"] == "base"
        assert "connection" not in fields
        assert fake_route.reported.result(60) == ("m", "mine", 1)


def test_connection_is_kept_after_a_refused_body_is_drained() -> None:
    with overloaded_server() as (server, fake_route), closing(server.connect()) as connection:
        for _ in range(3):
            connection.sendall(request(200_000, body=b"x" * 200_000))
            assert read_response(connection)[0] == 429
        fake_route.is_refusing = False
        connection.sendall(request(5, body=b"hello"))
        status, _, body = read_response(connection)
        assert (status, json.loads(body)["body"], fake_route.arriving) == (200, "hello", 0)


def test_invalid_request_id_is_replaced_by_a_generated_one() -> None:
    with overloaded_server() as (server, _), closing(server.connect()) as connection:
        connection.sendall(request(1, f"X-Request-ID: {'x' * 2000}"))
        assert len(read_response(connection)[1]["x-request-id"]) == 36


@pytest.mark.parametrize(
    "request_bytes",
    [
        request(MIB + 1),
        request(10, "Expect: 100-continue"),
        b"POST /full/m HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /full/m HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        request(5, "Connection: close"),
    ],
    ids=["large", "expect", "chunked", "http-1.0", "close"],
)
def test_connection_is_closed_if_the_body_is_not_drained(request_bytes: bytes) -> None:
    with overloaded_server() as (server, _):
        received = server.send_and_read(request_bytes)
        assert b"connection: close\r\n" in received
        assert b"100 Continue" not in received
        assert [status for status, _ in parse_responses(received)] == [429]


def test_client_that_sends_all_of_a_large_body_reads_the_refusal() -> None:
    size = 3 * MIB // 2
    with overloaded_server() as (server, _), closing(server.connect()) as connection:
        connection.sendall(request(size, body=b"x" * size))
        assert [status for status, _ in parse_responses(read_until_closed(connection))] == [429]


def test_requests_after_a_refused_one_are_answered_in_order() -> None:
    with overloaded_server() as (server, fake_route):
        requests = request(4, body=b"body") * 2 + request(1, "Connection: close", path="/else", body=b"1")
        assert [status for status, _ in parse_responses(server.send_and_read(requests))] == [429, 429, 200]
        assert fake_route.reported.result(60)[2] == 2


def test_request_after_one_in_flight_is_not_refused_early() -> None:
    with overloaded_server() as (server, _), closing(server.connect()) as connection:
        connection.sendall(request(0, path="/wait"))
        assert server.request_started.wait(60)
        connection.sendall(request(0, "Connection: close"))
        server.release.set()
        assert [status for status, _ in parse_responses(read_until_closed(connection))] == [200, 200]


@pytest.mark.parametrize("fields", [("Origin: http://a",), ("Upgrade: h2c", "Connection: upgrade, close")])
def test_requests_that_need_the_framework_are_not_refused_early(fields: Sequence[str]) -> None:
    with overloaded_server() as (server, _), closing(server.connect()) as connection:
        connection.sendall(request(0, *fields))
        assert read_response(connection)[0] == 200


def test_other_methods_and_paths_are_not_refused() -> None:
    with overloaded_server() as (server, _), closing(server.connect()) as connection:
        for line in ("GET /full/m", "POST /full", "POST /full/m/n", "POST /full/m%2Fn"):
            connection.sendall(f"{line} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
            assert read_response(connection)[0] == 200


def test_pauses_grow_up_to_the_maximum() -> None:
    shedder = LoadShedder()
    assert shedder.pause() == 0
    pauses = [shedder.pause() for _ in range(2000)]
    # At the maximum, pauses get shorter by the time between two calls.
    below_maximum = [pause for pause in pauses if pause < 1.9]
    assert below_maximum == sorted(below_maximum)
    assert 1.9 < pauses[-1] <= 2


@contextmanager
def full_engine(*names: str, metrics: CollectorRegistry | None = None) -> Generator[tuple[Engine, EventRecorder]]:
    """Yield an engine of stand-ins whose only worker is busy and whose queue has no slots."""
    settings = ModelSettings(task_type=TaskType.OBJECT_DETECTION)
    sources = [ModelSource(name=name, version="1", folder=Path(name), settings=settings) for name in names]
    registry = Registry(sources)
    for source in sources:
        registry.load(source, load_fake_model)
    observer, gate, started = EventRecorder(), threading.Event(), threading.Event()
    observers = [observer, Metrics(metrics or CollectorRegistry(), registry.known_name)]
    repository = Repository(registry, lambda: sources, load_fake_model)
    engine = Engine(repository, observers, Limits(), 1, QueueLimits(max_waiting=0))

    def block_worker() -> Any:
        started.set()
        gate.wait(60)
        raise InferenceError(ErrorKind.CANCELLED, "over")

    async def run() -> None:
        info = RequestContext(protocol="test", request_id="1", response_headers={})
        with pytest.raises(InferenceError):
            await engine.handle(info, names[0], block_worker, lambda response: response)

    holder = threading.Thread(target=lambda: asyncio.run(run()))
    holder.start()
    try:
        assert started.wait(60)
        yield engine, observer
    finally:
        gate.set()
        holder.join(30)
        engine.close()


TARGETS = {
    "chariot-v2-kserve": ["/infer", "/v2/models/m-detector/infer/", "/v2/models/m-x/versions/1/infer"],
    "chariot-v2": ["/infer", "/v2/models/m-detector/infer"],
    "kserve-v2": [
        "/v2/models/detector/infer",
        "/v2/models/detector/versions/1/infer",
        "/v2/models/detector/generate",
        "/v2/models/detector/generate_stream",
    ],
    "kserve-v1": ["/v1/models/detector:predict"],
    "grps": ["/grps/v1/infer/predict"],
    "openai": ["/openai/v1/chat/completions", "/v1/completions", "/v1/embeddings"],
    "tensorflow-serving": ["/v1/models/detector:predict", "/v1/models/detector/versions/1:classify"],
}


@pytest.mark.parametrize("protocol", [*PROTOCOLS, *LISTENERS], ids=lambda protocol: protocol.name)
def test_refusal_has_the_shape_of_the_protocol(protocol: HttpProtocol) -> None:
    protocols = [protocol] if protocol in LISTENERS else main_port_protocols("chariot-v2-kserve")
    if protocol.name == "chariot-v2":
        protocols = main_port_protocols("chariot-v2")
    message = "The server has 1 requests in flight and takes no more; try again later"
    with full_engine("detector") as (engine, _):
        routes = RouteTable(inference_routes(engine, protocols, secured=False))
        for path in TARGETS[protocol.name]:
            match = routes.find(b"POST", path.encode())
            assert match is not None, path
            error = match[0].overload(match[1])
            assert error is not None
            assert (error.kind, error.message, error.retry_after) == (ErrorKind.OVERLOADED, message, 1)
            assert match[0].body(error) == protocol.error_body(InferenceError(ErrorKind.OVERLOADED, message))


def test_only_inferences_are_refused() -> None:
    with full_engine("detector") as (engine, _):
        routes = RouteTable(inference_routes(engine, PROTOCOLS, secured=False))
        for path in ("/v1/models/detector:explain", "/v2/repository/index", "/grps/v1/metadata/model", "/"):
            assert routes.find(b"POST", path.encode()) is None
        for path in ("/v2/models/detector/ready", "/v2/models/detector/infer"):
            assert routes.find(b"GET", path.encode()) is None


def test_refusal_of_a_secured_server_does_not_reveal_model_names() -> None:
    with full_engine("detector", "classifier") as (engine, _):
        route, _ = RouteTable(inference_routes(engine, PROTOCOLS, secured=True)).find(
            b"POST", b"/v2/models/detector/infer"
        ) or (None, "")
        assert route is not None
        assert str(route.overload("detector")) == str(route.overload("no such model"))
        assert "1" not in str(route.overload("detector"))


def test_refusals_are_counted_and_observed_together() -> None:
    metrics = CollectorRegistry()
    with full_engine("detector", metrics=metrics) as (engine, observer):
        match = RouteTable(inference_routes(engine, PROTOCOLS, secured=False)).find(
            b"POST", b"/v1/models/detector:predict"
        )
        assert match is not None
        match[0].report("full", match[1], "an-id", 40)
        event = observer.events[-1]
        assert (event.count, event.model_name, event.request_id) == (40, "detector", "an-id")
        labels = {"protocol": "kserve-v1", "model": "detector", "version": "", "outcome": ErrorKind.OVERLOADED.value}
        assert metrics.get_sample_value("charioteer_inferences_total", labels) == 40


def test_engine_is_in_use_while_a_request_is_in_flight() -> None:
    with full_engine("detector") as (engine, _):
        assert engine.is_in_use
