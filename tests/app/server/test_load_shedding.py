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

from app.engine.admission import Bounds, Excess
from app.engine.engine import Engine
from app.engine.events import InferenceEvent, RequestInfo
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.observers.metrics import Metrics
from app.protocols import LISTENERS, PROTOCOLS, protocols_beside
from app.protocols.protocol import HttpProtocol
from app.server.load_shedding import LoadShedder, Route, inference_routes
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.task import TaskType
from tests.support.http_connections import Served, answers, everything, served
from tests.support.stand_ins import load_stand_in

MIB = 1024 * 1024


class Load:
    """A route that is refused as often as it is told to, and what was reported of it."""

    def __init__(self) -> None:
        self.refusing = True
        self.arriving = 0
        self.reported: Future[tuple[str, str, int]] = Future()

    @property
    def route(self) -> Route:
        return Route(
            method=b"POST",
            pattern="/full/([^/%]+)",
            excess=lambda target: Excess(message=f"{target} is full", retry_after=7) if self.refusing else None,
            body=lambda message: json.dumps({"error": message}).encode(),
            report=lambda _message, target, request_id, count: self.reported.set_result((target, request_id, count)),
            expect=self._expect,
        )

    def _expect(self) -> Any:
        self.arriving += 1

        def arrived() -> None:
            self.arriving -= 1

        return arrived


@contextmanager
def overloaded() -> Generator[tuple[Served, Load]]:
    load = Load()
    with served() as server:
        server.transport.connections.shedder = LoadShedder([load.route])
        yield server, load


def request(size: int, *fields: str, body: bytes = b"", path: str = "/full/m") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {size}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def one_answer(connection: Any) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next response, and nothing behind it."""
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
    with overloaded() as (server, load), closing(server.connect()) as connection:
        connection.sendall(request(79_000, "X-Request-ID: mine", "Chariot-Inference-Base-ID: base"))
        status, fields, body = one_answer(connection)
        assert (status, json.loads(body)) == (429, {"error": "m is full"})
        assert (fields["retry-after"], fields["x-request-id"]) == ("7", "mine")
        assert fields["chariot-inference-base-id"] == "base"
        assert "connection" not in fields
        assert load.reported.result(60) == ("m", "mine", 1)


def test_connection_is_kept_after_a_refused_body_is_drained() -> None:
    with overloaded() as (server, load), closing(server.connect()) as connection:
        for _ in range(3):
            connection.sendall(request(200_000, body=b"x" * 200_000))
            assert one_answer(connection)[0] == 429
        load.refusing = False
        connection.sendall(request(5, body=b"hello"))
        status, _, body = one_answer(connection)
        assert (status, json.loads(body)["body"], load.arriving) == (200, "hello", 0)


def test_request_id_is_made_where_none_is_given() -> None:
    with overloaded() as (server, _), closing(server.connect()) as connection:
        connection.sendall(request(1, f"X-Request-ID: {'x' * 2000}"))
        assert len(one_answer(connection)[1]["x-request-id"]) == 36


@pytest.mark.parametrize(
    "sent",
    [
        request(MIB + 1),
        request(10, "Expect: 100-continue"),
        b"POST /full/m HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /full/m HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        request(5, "Connection: close"),
    ],
    ids=["large", "expect", "chunked", "http-1.0", "close"],
)
def test_connection_ends_where_a_body_is_not_drained(sent: bytes) -> None:
    with overloaded() as (server, _):
        received = server.exchange(sent)
        assert b"connection: close\r\n" in received
        assert b"100 Continue" not in received
        assert [status for status, _ in answers(received)] == [429]


def test_client_that_sends_all_of_a_large_body_reads_the_refusal() -> None:
    size = 3 * MIB // 2
    with overloaded() as (server, _), closing(server.connect()) as connection:
        connection.sendall(request(size, body=b"x" * size))
        assert [status for status, _ in answers(everything(connection))] == [429]


def test_requests_behind_a_refused_one_are_answered_in_order() -> None:
    with overloaded() as (server, load):
        several = request(4, body=b"body") * 2 + request(1, "Connection: close", path="/else", body=b"1")
        assert [status for status, _ in answers(server.exchange(several))] == [429, 429, 200]
        assert load.reported.result(60)[2] == 2


def test_request_behind_one_in_flight_is_not_refused_early() -> None:
    with overloaded() as (server, _), closing(server.connect()) as connection:
        connection.sendall(request(0, path="/wait"))
        assert server.began.wait(60)
        connection.sendall(request(0, "Connection: close"))
        server.gate.set()
        assert [status for status, _ in answers(everything(connection))] == [200, 200]


@pytest.mark.parametrize("fields", [("Origin: http://a",), ("Upgrade: h2c", "Connection: upgrade, close")])
def test_requests_that_need_the_framework_are_not_refused_early(fields: Sequence[str]) -> None:
    with overloaded() as (server, _), closing(server.connect()) as connection:
        connection.sendall(request(0, *fields))
        assert one_answer(connection)[0] == 200


def test_other_methods_and_paths_are_not_refused() -> None:
    with overloaded() as (server, _), closing(server.connect()) as connection:
        for line in ("GET /full/m", "POST /full", "POST /full/m/n", "POST /full/m%2Fn"):
            connection.sendall(f"{line} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
            assert one_answer(connection)[0] == 200


def test_pauses_spread_reading_over_time_and_end() -> None:
    shedder = LoadShedder([])
    assert shedder.pause() == 0
    pauses = [shedder.pause() for _ in range(2000)]
    assert pauses == sorted(pauses)
    assert 0.9 < pauses[-1] <= 1


class Observed:
    def __init__(self) -> None:
        self.events: list[InferenceEvent] = []

    def observe(self, event: InferenceEvent, /) -> None:
        self.events.append(event)


@contextmanager
def full_engine(*names: str, metrics: CollectorRegistry | None = None) -> Generator[tuple[Engine, Observed]]:
    """An engine of stand-ins with one worker, which is taken, and no place to wait."""
    settings = ModelSettings(task_type=TaskType.OBJECT_DETECTION)
    sources = [ModelSource(name=name, version="1", folder=Path(name), settings=settings) for name in names]
    registry = Registry(sources)
    for source in sources:
        registry.load(source, load_stand_in)
    observed, gate, begun = Observed(), threading.Event(), threading.Event()
    observers = [observed, Metrics(metrics or CollectorRegistry(), registry.knows)]
    repository = Repository(registry, lambda: sources, load_stand_in)
    engine = Engine(repository, observers, Limits(), 1, Bounds(max_waiting=0))

    def hold() -> Any:
        begun.set()
        gate.wait(60)
        raise InferenceError(ErrorKind.CANCELLED, "over")

    async def run() -> None:
        caller = RequestInfo(protocol="test", request_id="1", returned={})
        with pytest.raises(InferenceError):
            await engine.exchange(caller, names[0], hold, lambda response: response)

    holding = threading.Thread(target=lambda: asyncio.run(run()))
    holding.start()
    try:
        assert begun.wait(60)
        yield engine, observed
    finally:
        gate.set()
        holding.join(30)
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
    "tensorflow-serving": ["/v1/models/detector:predict", "/v1/models/detector/versions/1:classify"],
}


@pytest.mark.parametrize("protocol", [*PROTOCOLS, *LISTENERS], ids=lambda protocol: protocol.name)
def test_refusal_has_the_shape_of_the_protocol(protocol: HttpProtocol) -> None:
    beside = [protocol] if protocol in LISTENERS else protocols_beside("chariot-v2-kserve")
    if protocol.name == "chariot-v2":
        beside = protocols_beside("chariot-v2")
    message = "The server has 1 requests in flight and takes no more; try again later"
    with full_engine("detector") as (engine, _):
        shedder = LoadShedder(inference_routes(engine, beside, secured=False))
        for path in TARGETS[protocol.name]:
            found = shedder.find(b"POST", 1, path.encode())
            assert found is not None, path
            assert found[0].excess(found[1]) == Excess(message=message, retry_after=1)
            assert found[0].body(message) == protocol.error_body(InferenceError(ErrorKind.OVERLOADED, message))


def test_only_inferences_are_refused() -> None:
    with full_engine("detector") as (engine, _):
        shedder = LoadShedder(inference_routes(engine, PROTOCOLS, secured=False))
        for path in ("/v1/models/detector:explain", "/v2/repository/index", "/grps/v1/metadata/model", "/"):
            assert shedder.find(b"POST", 1, path.encode()) is None
        for path in ("/v2/models/detector/ready", "/v2/models/detector/infer"):
            assert shedder.find(b"GET", 1, path.encode()) is None


def test_refusal_of_a_secured_server_says_nothing_of_its_models() -> None:
    with full_engine("detector", "classifier") as (engine, _):
        route, _ = LoadShedder(inference_routes(engine, PROTOCOLS, secured=True)).find(
            b"POST", 1, b"/v2/models/detector/infer"
        ) or (None, "")
        assert route is not None
        assert route.excess("detector") == route.excess("no such model")
        assert "1" not in str(route.excess("detector"))[: -len("retry_after=1)")]


def test_refusals_are_counted_and_observed_together() -> None:
    metrics = CollectorRegistry()
    with full_engine("detector", metrics=metrics) as (engine, observed):
        found = LoadShedder(inference_routes(engine, PROTOCOLS, secured=False)).find(
            b"POST", 1, b"/v1/models/detector:predict"
        )
        assert found is not None
        found[0].report("full", found[1], "an-id", 40)
        event = observed.events[-1]
        assert (event.count, event.model_name, event.caller.request_id) == (40, "detector", "an-id")
        labels = {"protocol": "kserve-v1", "model": "detector", "version": "", "outcome": ErrorKind.OVERLOADED.value}
        assert metrics.get_sample_value("charioteer_inferences_total", labels) == 40
        assert engine.trends.requests == 40


def test_engine_is_in_use_while_a_request_is_in_flight() -> None:
    with full_engine("detector") as (engine, _):
        assert engine.is_in_use
