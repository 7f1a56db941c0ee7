"""The page of a server: its files, its figures, its events, and what GRPS's tools poll."""

import asyncio
import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.answered import Timings
from app.engine.engine import Engine
from app.engine.events import InferenceEvent, RequestInfo
from app.engine.history import Readings
from app.engine.process_usage import machine_memory
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.protocols import protocols_beside
from app.server.asgi import create_app
from app.server.page.events import Events
from app.server.page.page import Page, until_next_reading
from app.server.page.series import SERIES
from app.server.page.snapshot import PERCENTILES, look_at, take_snapshot
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind
from tasks.exchange.limits import Limits
from tests.support.chariot import image_input, infer
from tests.support.server_process import serving
from tests.support.stand_ins import STAND_INS, load_stand_in

STATIC = Path(__file__).parents[3] / "app" / "server" / "page" / "static"
CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
NAMES = ("classifier", "detector")

EVENT = InferenceEvent(
    caller=RequestInfo(protocol="kserve-v2", request_id="1"),
    model_name="detector",
    model_version="1",
    outcome=None,
    error="",
    batch_size=2,
    queue=10,
    total=20_000_000,
    timings=Timings(),
    metadata=(),
)
FAILURE = msgspec.structs.replace(EVENT, outcome=ErrorKind.INVALID_REQUEST, batch_size=0, total=1)


class Clock:
    """Stands still until told otherwise."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def engine_of(clock: Callable[[], float]) -> Engine:
    sources = [
        ModelSource(name=name, version="1", folder=Path(name), settings=ModelSettings(task_type=STAND_INS[name][0]))
        for name in NAMES
    ]
    registry = Registry(sources)
    registry.load(sources[0], load_stand_in)
    registry.load(sources[1], load_stand_in)
    return Engine(Repository(registry, lambda: sources, load_stand_in), [], Limits(), workers=2, clock=clock)


def app_of(engine: Engine, page: Page | None) -> Litestar:
    return create_app(engine, protocols_beside("chariot-v2-kserve"), CollectorRegistry(), 2_000_000, page=page)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(clock: Clock) -> Engine:
    return engine_of(clock)


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient[Litestar]]:
    with TestClient(app_of(engine, Page(engine))) as client:
        yield client


@pytest.mark.parametrize(
    "accept",
    [CHROME, "text/html", "TEXT/HTML", "text/html;q=0.9, application/json;q=0.5", "application/json;q=0.1, text/html"],
)
def test_browsers_get_the_page(client: TestClient[Litestar], accept: str) -> None:
    response = client.get("/", headers={"accept": accept})
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.text.startswith("<!doctype html>")
    assert response.headers["vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "",
        "application/json",
        "application/json, text/html",
        "text/html;q=0",
        "text/html;q=0.3, application/json",
        "text/html;q=many",
        "text/plain",
        "text/*",
        ";;,,;q=",
        "text/html" * 1000,
    ],
)
def test_all_others_get_the_state_of_the_server(client: TestClient[Litestar], accept: str) -> None:
    response = client.get("/", headers={"accept": accept})
    assert response.status_code == 200
    assert response.json()["status"] == "alive"
    assert response.json()["models"] == sorted(NAMES)
    assert response.headers["vary"] == "Accept"


@pytest.mark.parametrize("path", ["/", "/page/frame.js", "/page/page.css", "/grps/v1/monitor/metrics"])
def test_the_page_runs_nothing_but_its_own_files(client: TestClient[Litestar], path: str) -> None:
    headers = client.get(path, headers={"accept": CHROME}).headers
    policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_every_file_is_served_as_what_it_is(client: TestClient[Litestar]) -> None:
    types = {
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".svg": "image/svg+xml",
    }
    files = [each for each in STATIC.iterdir() if each.name != "index.html"]
    assert len(files) > 5
    for file in files:
        response = client.get(f"/page/{file.name}")
        assert response.headers["content-type"] == types[file.suffix]
        assert response.content == file.read_bytes()


def test_the_page_is_light(client: TestClient[Litestar]) -> None:
    sent = 0
    for file in STATIC.iterdir():
        response = client.get(f"/page/{file.name}" if file.name != "index.html" else "/", headers={"accept": CHROME})
        assert response.status_code == 200
        sent += response.num_bytes_downloaded
    assert sent < 150_000


def test_page_files_are_compressed_for_clients_that_accept_gzip(client: TestClient[Litestar]) -> None:
    plain = client.get("/page/text.js", headers={"accept-encoding": "identity"})
    compressed = client.get("/page/text.js", headers={"accept-encoding": "gzip, br"})
    assert "content-encoding" not in plain.headers
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.num_bytes_downloaded < len(plain.content) / 2
    assert compressed.content == plain.content
    again = client.get("/page/text.js", headers={"accept-encoding": "gzip", "if-none-match": plain.headers["etag"]})
    assert again.status_code == 304


def test_files_that_did_not_change_are_not_sent_again(client: TestClient[Litestar]) -> None:
    first = client.get("/page/frame.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/page/frame.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/page/frame.js", headers={"if-none-match": '"something else"'})
    assert other.content == first.content


@pytest.mark.parametrize(
    "path", ["/page/index.html", "/page/none.js", "/page/..%2f..%2fpage.py", "/page/%2e%2e", "/page/", "/page/a/b"]
)
def test_nothing_else_is_served(client: TestClient[Litestar], path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "Nothing is served" in response.json()["error"]


@pytest.mark.parametrize(("path", "root"), [("/", ""), ("/grps/v1/monitor/metrics", "../../../")])
def test_files_are_found_from_wherever_the_page_is(client: TestClient[Litestar], path: str, root: str) -> None:
    html = client.get(path, headers={"accept": CHROME}).text
    found = re.findall(r'(?:href|src)="([^"]*)"', html)
    assert len(found) > 6
    for each in found:
        assert each.startswith(f"{root}page/") or each == f"{root}metrics"
        assert client.get(str(httpx.URL(f"http://server{path}").join(each))).status_code == 200


def test_what_the_files_import_is_there(client: TestClient[Litestar]) -> None:
    for file in STATIC.glob("*.js"):
        for name in re.findall(r'(?:from |import\()"\./([^"]+)"', file.read_text()):
            assert client.get(f"/page/{name}").status_code == 200, f"{file.name} imports {name}"


@pytest.mark.parametrize("path", ["/page/frame.js", "/page/events", "/grps/v1/monitor/metrics"])
def test_without_the_page_there_is_none_of_it(engine: Engine, path: str) -> None:
    with TestClient(app_of(engine, None)) as client:
        assert client.get(path).status_code == 404
        assert client.get("/", headers={"accept": CHROME}).json()["status"] == "alive"


def test_a_snapshot_tells_what_happened(engine: Engine, clock: Clock) -> None:
    for latency in range(1, 101):
        engine.trends.observe(msgspec.structs.replace(EVENT, total=latency * 1_000_000))
    engine.trends.observe(FAILURE)
    engine.trends.observe(msgspec.structs.replace(FAILURE, model_name="stranger", model_version=""))
    engine.trends.read(Readings(in_flight=3, waiting=1, cpu=0.25, memory=5_000_000))
    clock.now += 10
    shown = look_at(engine, take_snapshot(engine, "60s"), "detector")
    assert (shown.ever, shown.interval, shown.age) == (102, 1, 10)
    assert (shown.total.requests, shown.total.failures, shown.total.rate) == (102, 2, 10.2)
    classifier, detector = shown.models
    assert (classifier.name, classifier.requests, classifier.mean, classifier.slowest) == ("classifier", 0, None, None)
    assert classifier.percentiles == [None] * len(PERCENTILES)
    assert (detector.name, detector.state, detector.task) == ("detector", "READY", "OBJECT_DETECTION")
    assert (detector.requests, detector.failures, detector.mean) == (101, 1, 50.5)
    assert (detector.slowest, detector.batch) == (100, 2)
    assert detector.percentiles == pytest.approx([50, 75, 90, 95, 99, 100, 100], rel=0.03)
    assert detector.trend == [None] * 50 + [101] + [0] * 9
    assert shown.detail.name == "detector"
    assert shown.detail.errors[50] == pytest.approx(100 / 101, rel=1e-4)
    assert shown.detail.errors[51:] == [None] * 9
    assert shown.detail.mean[50] == 50.5
    assert shown.detail.p50[50] == pytest.approx(50, rel=0.03)
    assert shown.detail.p99[50] == pytest.approx(99, rel=0.03)
    assert shown.detail.batches == [("2", 100)]
    assert shown.detail.cdf[-1] == (100, 1.0)
    assert shown.process["cpu"][50:52] == [0.25, None]
    assert (shown.now.cpu, shown.now.memory, shown.now.in_flight) == (0.25, 5_000_000, 0)


@pytest.mark.parametrize("window", ["60s", "60m", "24h"])
def test_every_window_has_the_same_requests(engine: Engine, clock: Clock, window: str) -> None:
    engine.trends.observe(EVENT)
    engine.trends.observe(FAILURE)
    clock.now += 30
    shown = take_snapshot(engine, window)
    assert (shown.window, shown.total.requests, shown.total.failures) == (window, 2, 1)
    assert shown.total.rate == pytest.approx(2 / 30, rel=1e-3)
    assert len(shown.total.trend) == len(shown.detail.p90) == len(shown.process["memory"])
    assert sum(rate is not None for rate in shown.total.trend) == {"60s": 30}.get(window, 1)


def test_a_percentile_is_never_above_the_slowest(engine: Engine, clock: Clock) -> None:
    engine.trends.observe(msgspec.structs.replace(EVENT, total=10_600_000))
    clock.now += 1
    shown = look_at(engine, take_snapshot(engine, "60s"), "detector")
    assert shown.total.slowest == 10.6
    assert max(each for each in shown.total.percentiles if each is not None) <= 10.6
    assert shown.detail.p99[-1] is not None
    assert shown.detail.p99[-1] <= 10.6
    assert shown.detail.cdf == [(10.6, 1.0)]


def test_a_snapshot_says_why_nothing_should_be_sent(engine: Engine) -> None:
    assert take_snapshot(engine, "60s").unready == ""
    engine.online = False
    assert "offline" in take_snapshot(engine, "60s").unready


@pytest.mark.parametrize("model", ["", "stranger", "<script>", "detector\x00"])
def test_details_of_what_is_no_model_are_those_of_all(engine: Engine, model: str) -> None:
    taken = take_snapshot(engine, "60s")
    assert look_at(engine, taken, model) is taken
    assert taken.detail.name == ""


def test_a_snapshot_is_small_and_quick(engine: Engine, clock: Clock) -> None:
    for latency in range(1, 2000):
        engine.trends.observe(msgspec.structs.replace(EVENT, total=latency * 500_000))
        clock.now += 0.1
    assert len(msgspec.json.encode(look_at(engine, take_snapshot(engine, "60s"), "detector"))) < 12_000
    began = time.thread_time()
    for _ in range(20):
        take_snapshot(engine, "60s")
    assert (time.thread_time() - began) / 20 < 0.02


class Wire:
    """What an ASGI server would be to the events: remembers what is sent, and says when the sender is gone."""

    def __init__(self, query: str = "", method: str = "GET") -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.told = asyncio.Event()
        self.stuck = False
        self.scope: Any = {"type": "http", "method": method, "query_string": query.encode()}
        self._asked = False

    async def receive(self) -> Any:
        if self._asked:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        self._asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.told.set()
            if self.stuck:
                await asyncio.Event().wait()

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def bodies(self) -> list[bytes]:
        return [each["body"] for each in self.sent[1:] if each["body"]]


@pytest.mark.parametrize(
    ("query", "window", "detail"),
    [
        ("", "60s", ""),
        ("window=60m&model=detector", "60m", "detector"),
        ("window=24h&model=%3Cb%3E", "24h", ""),
        ("model=classifier&model=detector&x=1", "60s", "classifier"),
    ],
)
def test_an_event_is_a_snapshot(engine: Engine, query: str, window: str, detail: str) -> None:
    async def listen() -> Wire:
        events, wire = Events(engine), Wire(query)
        answer = asyncio.create_task(events(wire.scope, wire.receive, wire.send))
        await wire.told.wait()
        assert events.listening == 1
        wire.gone.set()
        await answer
        assert events.listening == 0
        events.stop()
        return wire

    wire = asyncio.run(listen())
    headers = dict(wire.sent[0]["headers"])
    assert wire.status == 200
    assert headers[b"content-type"] == b"text/event-stream"
    assert headers[b"cache-control"] == b"no-cache"
    assert wire.bodies[0].startswith(b"data: {")
    assert wire.bodies[0].endswith(b"}\n\n")
    shown = json.loads(wire.bodies[0].removeprefix(b"data: "))
    assert (shown["window"], shown["detail"]["name"]) == (window, detail)
    assert [each["name"] for each in shown["models"]] == list(NAMES)


@pytest.mark.parametrize(
    ("query", "method", "status", "said"),
    [
        ("window=60", "GET", 400, "60s, 60m, 24h"),
        ("window=60s%00", "GET", 400, "window"),
        ("", "POST", 405, "GET"),
        ("", "DELETE", 405, "GET"),
    ],
)
def test_wrong_requests_for_events_are_refused(engine: Engine, query: str, method: str, status: int, said: str) -> None:
    wire, events = Wire(query, method), Events(engine)
    asyncio.run(events(wire.scope, wire.receive, wire.send))
    assert wire.status == status
    assert said in json.loads(wire.bodies[0])["error"]
    assert events.listening == 0


def test_so_many_may_listen(engine: Engine) -> None:
    async def listen() -> None:
        events, wires = Events(engine, most=2), [Wire(), Wire()]
        answers = [asyncio.create_task(events(each.scope, each.receive, each.send)) for each in wires]
        await asyncio.gather(*(each.told.wait() for each in wires))
        late = Wire()
        await events(late.scope, late.receive, late.send)
        assert late.status == 503
        assert "open 2 times" in json.loads(late.bodies[0])["error"]
        wires[0].gone.set()
        await answers[0]
        later = Wire()
        answer = asyncio.create_task(events(later.scope, later.receive, later.send))
        await later.told.wait()
        assert later.status == 200
        events.stop()
        await asyncio.gather(answer, answers[1])

    asyncio.run(asyncio.wait_for(listen(), 60))


def test_events_end_with_the_server(engine: Engine) -> None:
    async def listen() -> None:
        events, wire = Events(engine), Wire()
        answer = asyncio.create_task(events(wire.scope, wire.receive, wire.send))
        await wire.told.wait()
        events.stop()
        await answer
        assert wire.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        late = Wire()
        await events(late.scope, late.receive, late.send)
        assert late.status == 503

    asyncio.run(asyncio.wait_for(listen(), 60))


@pytest.mark.parametrize("ending", ["patience", "stop", "gone"])
def test_who_takes_nothing_is_let_go(engine: Engine, ending: str) -> None:
    async def listen() -> None:
        events, wire = Events(engine, patience=0.05 if ending == "patience" else 60), Wire()
        wire.stuck = True
        answer = asyncio.create_task(events(wire.scope, wire.receive, wire.send))
        await wire.told.wait()
        if ending == "stop":
            events.stop()
        elif ending == "gone":
            wire.gone.set()
        await answer
        assert events.listening == 0
        assert len(wire.bodies) == 1
        events.stop()

    asyncio.run(asyncio.wait_for(listen(), 60))


def series(client: TestClient[Litestar], name: str) -> dict[str, Any]:
    response = client.get("/grps/v1/monitor/series", params={"name": name})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json;charset=utf-8"
    return response.json()


def test_series_of_grps_are_trends_of_174_points(clock: Clock, engine: Engine) -> None:
    # Without its lifespan, the application does not measure the process, which would replace the readings below.
    client = TestClient(app_of(engine, Page(engine)))
    for _ in range(3):
        engine.trends.observe(EVENT)
    engine.trends.observe(FAILURE)
    engine.trends.read(Readings(in_flight=0, waiting=0, cpu=0.5, memory=machine_memory() / 4))
    clock.now += 2
    wanted = {
        "*qps": (2.0, 2.0, 4.0),
        "*fail_rate(%)": (25.0, 25.0, 25.0),
        "*latency_avg(ms)": (20.0, 20.0, 20.0),
        "*latency_max(ms)": (20.0, 20.0, 20.0),
        "*cpu_usage(%)": (50.0, 50.0, 50.0),
        "*mem_usage(%)": (25.0, 25.0, 25.0),
    }
    assert {*wanted, "*latency_cdf(ms)"} == set(SERIES)
    for name, (day, minute, second) in wanted.items():
        found = series(client, name)
        assert found["label"] == "trend"
        assert [place for place, _ in found["data"]] == list(range(174))
        values = dict(found["data"])
        # The last day, hour and minute go on; the last second but one is the one in which it happened.
        assert (values[29], values[53], values[113], values[172]) == (day, day, minute, second), name
        assert sum(value != 0 for value in values.values()) == 4


def test_the_distribution_of_grps_is_of_the_last_second(
    client: TestClient[Litestar], clock: Clock, engine: Engine
) -> None:
    places = [*range(10, 100, 10), *range(91, 102)]
    for latency in range(1, 1001):
        engine.trends.observe(msgspec.structs.replace(EVENT, total=latency * 100_000))
    clock.now += 1
    found = series(client, "*latency_cdf(ms)")
    assert found["label"] == "cdf"
    assert [place for place, _ in found["data"]] == places
    wanted = [{100: 99.9, 101: 100}.get(place, place) for place in places]
    assert [value for _, value in found["data"]] == pytest.approx(wanted, rel=0.031)
    clock.now += 1
    assert series(client, "*latency_cdf(ms)")["data"] == [[place, 0] for place in places]


@pytest.mark.parametrize("name", ["", "qps", "*qps(inc/s)", "*gpu0_usage(%)", "\x00", "x" * 5000])
def test_a_series_that_is_not_there_is_told_as_grps_tells_it(client: TestClient[Litestar], name: str) -> None:
    response = client.get("/grps/v1/monitor/series", params={"name": name})
    assert (response.status_code, response.text) == (200, "key not found")
    assert response.headers["content-type"].startswith("text/html")


def test_inferences_are_seen(client: TestClient[Litestar], clock: Clock, engine: Engine) -> None:
    assert infer(client, "detector", image_input(), image_input(name="b")).status_code == 200
    assert infer(client, "detector").status_code == 400
    assert infer(client, "nobody", image_input()).status_code == 404
    clock.now += 1
    shown = take_snapshot(engine, "60s")
    assert (shown.total.requests, shown.total.failures) == (3, 2)
    detector = shown.models[1]
    assert (detector.requests, detector.failures, detector.batch) == (2, 1, 2)


@pytest.mark.slow
def test_open_pages_do_not_hold_up_the_end_of_the_server() -> None:
    with serving("--model", "fixtures/models/classifier", "--drain-timeout", "600") as server:
        port = int(server.address.rpartition(":")[2])
        with httpx.stream(
            "GET", f"{server.address}/page/events", headers={"accept-encoding": "gzip"}, timeout=60
        ) as response:
            assert "content-encoding" not in response.headers
            lines = response.iter_lines()
            first, gap, second = next(lines), next(lines), next(lines)
            assert json.loads(first.removeprefix("data: "))["age"] < json.loads(second.removeprefix("data: "))["age"]
            assert gap == ""
            # And one who asked, and reads nothing.
            with socket.create_connection(("127.0.0.1", port)) as mute:
                mute.sendall(b"GET /page/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert mute.recv(12) == b"HTTP/1.1 200"
                # Whoever waits for the pages waits for ten minutes.
                server.process.send_signal(signal.SIGTERM)
                assert server.wait() == 0
            assert list(lines)[-1:] in ([], [""])


@pytest.mark.parametrize("path", ["/page/models.json", "/page/samples/scene.jpg", "/page/repository"])
def test_where_only_the_metrics_are_shown_nothing_else_is(engine: Engine, path: str) -> None:
    with TestClient(app_of(engine, Page(engine, whole=False))) as client:
        assert client.get("/", headers={"accept": CHROME}).json()["status"] == "alive"
        assert client.get(path).status_code == 404
        html = client.get("/grps/v1/monitor/metrics").text
        assert 'data-views="metrics" data-opens="metrics"' in html
        assert client.get("/page/metrics.js").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ([], True),
        (["--no-page"], False),
        (["--host", "0.0.0.0", "--insecure"], False),
        (["--host", "0.0.0.0", "--insecure", "--page"], True),
    ],
)
def test_the_page_is_for_this_machine_unless_told_otherwise(arguments: list[str], whole: bool) -> None:
    with serving("--model", "fixtures/models/classifier", *arguments) as server:
        answer = httpx.get(server.address, headers={"accept": CHROME}, timeout=60)
        assert answer.headers["content-type"].startswith("text/html" if whole else "application/json")
        assert httpx.get(f"{server.address}/page/models.json", timeout=60).status_code == (200 if whole else 404)
        assert httpx.get(f"{server.address}/grps/v1/monitor/metrics", timeout=60).status_code == 200


@given(age=st.floats(0, 1e7))
def test_a_second_has_one_reading_though_timers_are_early_or_late(age: float) -> None:
    for off in (-0.4, -1e-9, 0.0, 1e-9, 0.4):
        assert int(age + until_next_reading(age) + off) == int(age) + 1


@pytest.mark.slow
def test_the_process_measures_itself() -> None:
    with serving("--model", "fixtures/models/classifier") as server:
        with httpx.stream("GET", f"{server.address}/page/events", timeout=60) as response:
            told = (json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line)
            shown = next(each for each in told if each["now"]["memory"])
        assert 2**20 < shown["now"]["memory"] < shown["machine_memory"]
        assert 0 <= shown["now"]["cpu"] < 100
        assert server.stop() == 0
