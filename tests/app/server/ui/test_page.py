"""The web page: files, snapshots, events, and the series that GRPS tools poll."""

import asyncio
import json
import re
import signal
import socket
import time
from collections.abc import Iterator
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

from app.engine.engine import Engine
from app.engine.models.registry import Registry
from app.engine.models.repository import Repository
from app.engine.request_context import RequestContext
from app.observers.request_history import Readings
from app.observers.trends import Trends
from app.protocols import main_port_protocols
from app.server.http.asgi import create_app
from app.server.ui.event_stream import EventStream
from app.server.ui.page import WebPage, seconds_until_sample
from app.server.ui.series import SERIES
from app.server.ui.snapshot import PERCENTILES, machine_memory, take_snapshot, with_model_detail
from app.settings.model import ModelSettings, ModelSource
from tasks.inference.error import ErrorKind
from tasks.inference.limits import Limits
from tests.support.chariot import image_input, infer
from tests.support.fake_models import FAKE_MODELS, load_fake_model
from tests.support.server_process import run_server

STATIC = Path(__file__).parents[4] / "app" / "server" / "ui" / "static"
CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
NAMES = ("classifier", "detector")

EVENT = RequestContext(
    protocol="kserve-v2",
    request_id="1",
    model_name="detector",
    model_version="1",
    batch_size=2,
    queue=10,
    total=20_000_000,
)
FAILURE = msgspec.structs.replace(EVENT, outcome=ErrorKind.INVALID_REQUEST, batch_size=0, total=1)


class Clock:
    """Return a time that only the test changes."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def engine_of(trends: Trends) -> Engine:
    sources = [
        ModelSource(name=name, version="1", folder=Path(name), settings=ModelSettings(task_type=FAKE_MODELS[name][0]))
        for name in NAMES
    ]
    registry = Registry(sources)
    registry.load(sources[0], load_fake_model)
    registry.load(sources[1], load_fake_model)
    return Engine(
        Repository(registry, lambda: sources, load_fake_model), [], Limits(), workers=2, batched_observers=[trends]
    )


def app_of(engine: Engine, page: WebPage | None) -> Litestar:
    return create_app(engine, main_port_protocols("chariot-v2-kserve"), CollectorRegistry(), 2_000_000, page=page)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trends(clock: Clock) -> Trends:
    return Trends(NAMES.__contains__, clock)


@pytest.fixture
def engine(trends: Trends) -> Engine:
    return engine_of(trends)


@pytest.fixture
def client(engine: Engine, trends: Trends) -> Iterator[TestClient[Litestar]]:
    with TestClient(app_of(engine, WebPage(engine, trends))) as client:
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
    assert set(re.split(r", ?", response.headers["vary"])) == {"Accept", "Accept-Encoding"}


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
def test_other_clients_get_the_server_state_as_json(client: TestClient[Litestar], accept: str) -> None:
    response = client.get("/", headers={"accept": accept})
    assert response.status_code == 200
    assert response.json()["status"] == "alive"
    assert response.json()["models"] == sorted(NAMES)
    assert response.headers["vary"] == "Accept"


@pytest.mark.parametrize("path", ["/", "/page/frame.js", "/page/page.css", "/grps/v1/monitor/metrics"])
def test_page_has_a_strict_content_security_policy(client: TestClient[Litestar], path: str) -> None:
    headers = client.get(path, headers={"accept": CHROME}).headers
    policy = dict(directive.strip().split(" ", 1) for directive in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_static_files_have_their_content_types(client: TestClient[Litestar]) -> None:
    types = {
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".svg": "image/svg+xml",
    }
    files = [file for file in STATIC.iterdir() if file.name != "index.html"]
    assert len(files) > 5
    for file in files:
        response = client.get(f"/page/{file.name}")
        assert response.headers["content-type"] == types[file.suffix]
        assert response.content == file.read_bytes()


def test_all_page_files_are_under_150_kb(client: TestClient[Litestar]) -> None:
    downloaded = 0
    for file in STATIC.iterdir():
        response = client.get(f"/page/{file.name}" if file.name != "index.html" else "/", headers={"accept": CHROME})
        assert response.status_code == 200
        downloaded += response.num_bytes_downloaded
    assert downloaded < 150_000


def test_page_files_are_compressed_for_clients_that_accept_gzip(client: TestClient[Litestar]) -> None:
    plain = client.get("/page/metrics.js", headers={"accept-encoding": "identity"})
    compressed = client.get("/page/metrics.js", headers={"accept-encoding": "gzip, br"})
    assert "content-encoding" not in plain.headers
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.num_bytes_downloaded < len(plain.content) / 2
    assert compressed.content == plain.content
    again = client.get("/page/metrics.js", headers={"accept-encoding": "gzip", "if-none-match": plain.headers["etag"]})
    assert again.status_code == 304


def test_unchanged_files_are_304(client: TestClient[Litestar]) -> None:
    first = client.get("/page/frame.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/page/frame.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/page/frame.js", headers={"if-none-match": '"something else"'})
    assert other.content == first.content


@pytest.mark.parametrize(
    "path", ["/page/index.html", "/page/none.js", "/page/..%2f..%2fpage.py", "/page/%2e%2e", "/page/", "/page/a/b"]
)
def test_other_page_paths_are_404(client: TestClient[Litestar], path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "Nothing is served" in response.json()["error"]


@pytest.mark.parametrize(("path", "root"), [("/", ""), ("/grps/v1/monitor/metrics", "../../../")])
def test_links_of_the_page_resolve_from_both_of_its_paths(client: TestClient[Litestar], path: str, root: str) -> None:
    html = client.get(path, headers={"accept": CHROME}).text
    links = re.findall(r'(?:href|src)="([^"]*)"', html)
    assert len(links) > 6
    for link in links:
        assert link.startswith(f"{root}page/") or link == f"{root}metrics"
        assert client.get(str(httpx.URL(f"http://server{path}").join(link))).status_code == 200


def test_every_view_is_served(client: TestClient[Litestar]) -> None:
    views = re.findall(r'\{ id: "(\w+)", title', (STATIC / "frame.js").read_text())
    assert len(views) == 9
    for view in views:
        assert "export " in client.get(f"/page/{view}.js").text


def test_modules_import_only_served_files(client: TestClient[Litestar]) -> None:
    for file in STATIC.glob("*.js"):
        for name in re.findall(r'(?:from |import\()"\./([^"]+)"', file.read_text()):
            assert client.get(f"/page/{name}").status_code == 200, f"{file.name} imports {name}"


@pytest.mark.parametrize("path", ["/page/frame.js", "/page/events", "/grps/v1/monitor/metrics"])
def test_disabled_page_is_404_and_root_is_json(engine: Engine, path: str) -> None:
    with TestClient(app_of(engine, None)) as client:
        assert client.get(path).status_code == 404
        assert client.get("/", headers={"accept": CHROME}).json()["status"] == "alive"


def test_snapshot_has_the_figures_of_the_window(engine: Engine, clock: Clock, trends: Trends) -> None:
    for latency in range(1, 101):
        trends.observe(msgspec.structs.replace(EVENT, total=latency * 1_000_000))
    trends.observe(FAILURE)
    trends.observe(msgspec.structs.replace(FAILURE, model_name="stranger", model_version=""))
    trends.add_readings(Readings(in_flight=3, waiting=1, cpu=0.25, memory=5_000_000))
    clock.now += 10
    snapshot = with_model_detail(trends, take_snapshot(engine, trends, "60s"), "detector")
    assert (snapshot.ever, snapshot.interval, snapshot.age) == (102, 1, 10)
    assert (snapshot.total.requests, snapshot.total.failures, snapshot.total.rate) == (102, 2, 10.2)
    classifier, detector = snapshot.models
    assert (classifier.name, classifier.requests, classifier.mean, classifier.slowest) == ("classifier", 0, None, None)
    assert classifier.percentiles == [None] * len(PERCENTILES)
    assert (detector.name, detector.state, detector.task) == ("detector", "READY", "OBJECT_DETECTION")
    assert (detector.requests, detector.failures, detector.mean) == (101, 1, 50.5)
    assert (detector.slowest, detector.batch) == (100, 2)
    assert detector.percentiles == pytest.approx([50, 75, 90, 95, 99, 100, 100], rel=0.03)
    assert detector.trend == [None] * 50 + [101] + [0] * 9
    assert snapshot.detail.name == "detector"
    assert snapshot.detail.errors[50] == pytest.approx(100 / 101, rel=1e-4)
    assert snapshot.detail.errors[51:] == [None] * 9
    assert snapshot.detail.mean[50] == 50.5
    assert snapshot.detail.p50[50] == pytest.approx(50, rel=0.03)
    assert snapshot.detail.p99[50] == pytest.approx(99, rel=0.03)
    assert snapshot.detail.batches == [("2", 100)]
    assert snapshot.detail.cdf[-1] == (100, 1.0)
    assert snapshot.process["cpu"][50:52] == [0.25, None]
    assert (snapshot.now.cpu, snapshot.now.memory, snapshot.now.in_flight) == (0.25, 5_000_000, 0)


@pytest.mark.parametrize("window", ["60s", "60m", "24h"])
def test_every_window_counts_the_same_requests(engine: Engine, clock: Clock, window: str, trends: Trends) -> None:
    trends.observe(EVENT)
    trends.observe(FAILURE)
    clock.now += 30
    snapshot = take_snapshot(engine, trends, window)
    assert (snapshot.window, snapshot.total.requests, snapshot.total.failures) == (window, 2, 1)
    assert snapshot.total.rate == pytest.approx(2 / 30, rel=1e-3)
    assert len(snapshot.total.trend) == len(snapshot.detail.p90) == len(snapshot.process["memory"])
    assert sum(rate is not None for rate in snapshot.total.trend) == {"60s": 30}.get(window, 1)


def test_percentile_is_never_above_the_slowest_request(engine: Engine, clock: Clock, trends: Trends) -> None:
    trends.observe(msgspec.structs.replace(EVENT, total=10_600_000))
    clock.now += 1
    snapshot = with_model_detail(trends, take_snapshot(engine, trends, "60s"), "detector")
    assert snapshot.total.slowest == 10.6
    assert max(percentile for percentile in snapshot.total.percentiles if percentile is not None) <= 10.6
    assert snapshot.detail.p99[-1] is not None
    assert snapshot.detail.p99[-1] <= 10.6
    assert snapshot.detail.cdf == [(10.6, 1.0)]


def test_snapshot_has_the_reason_why_the_server_is_not_ready(engine: Engine, trends: Trends) -> None:
    assert take_snapshot(engine, trends, "60s").unready == ""
    engine.online = False
    assert "offline" in take_snapshot(engine, trends, "60s").unready


@pytest.mark.parametrize("model", ["", "stranger", "<script>", "detector\x00"])
def test_details_of_an_unknown_model_are_those_of_all_models(engine: Engine, model: str, trends: Trends) -> None:
    snapshot = take_snapshot(engine, trends, "60s")
    assert with_model_detail(trends, snapshot, model) is snapshot
    assert snapshot.detail.name == ""


def test_snapshot_is_small_and_fast(engine: Engine, clock: Clock, trends: Trends) -> None:
    for latency in range(1, 2000):
        trends.observe(msgspec.structs.replace(EVENT, total=latency * 500_000))
        clock.now += 0.1
    assert (
        len(msgspec.json.encode(with_model_detail(trends, take_snapshot(engine, trends, "60s"), "detector"))) < 12_000
    )
    began = time.thread_time()
    for _ in range(20):
        take_snapshot(engine, trends, "60s")
    assert (time.thread_time() - began) / 20 < 0.02


class FakeWire:
    """Play the ASGI server: record what is sent, and report the disconnect."""

    def __init__(self, query: str = "", method: str = "GET") -> None:
        self.sent: list[dict[str, Any]] = []
        self.disconnected = asyncio.Event()
        self.body_sent = asyncio.Event()
        self.is_stuck = False
        self.scope: Any = {"type": "http", "method": method, "query_string": query.encode()}
        self._request_read = False

    async def receive(self) -> Any:
        if self._request_read:
            await self.disconnected.wait()
            return {"type": "http.disconnect"}
        self._request_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.body_sent.set()
            if self.is_stuck:
                await asyncio.Event().wait()

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:] if message["body"]]


@pytest.mark.parametrize(
    ("query", "window", "detail"),
    [
        ("", "60s", ""),
        ("window=60m&model=detector", "60m", "detector"),
        ("window=24h&model=%3Cb%3E", "24h", ""),
        ("model=classifier&model=detector&x=1", "60s", "classifier"),
    ],
)
def test_event_contains_a_snapshot(engine: Engine, query: str, window: str, detail: str, trends: Trends) -> None:
    async def run() -> FakeWire:
        events, wire = EventStream(engine, trends), FakeWire(query)
        task = asyncio.create_task(events(wire.scope, wire.receive, wire.send))
        await wire.body_sent.wait()
        assert events.open_streams == 1
        wire.disconnected.set()
        await task
        assert events.open_streams == 0
        events.stop()
        return wire

    wire = asyncio.run(run())
    headers = dict(wire.sent[0]["headers"])
    assert wire.status == 200
    assert headers[b"content-type"] == b"text/event-stream"
    assert headers[b"cache-control"] == b"no-cache"
    assert wire.bodies[0].startswith(b"data: {")
    assert wire.bodies[0].endswith(b"}\n\n")
    snapshot = json.loads(wire.bodies[0].removeprefix(b"data: "))
    assert (snapshot["window"], snapshot["detail"]["name"]) == (window, detail)
    assert [model["name"] for model in snapshot["models"]] == list(NAMES)


@pytest.mark.parametrize(
    ("query", "method", "status", "error_text"),
    [
        ("window=60", "GET", 400, "60s, 60m, 24h"),
        ("window=60s%00", "GET", 400, "window"),
        ("", "POST", 405, "GET"),
        ("", "DELETE", 405, "GET"),
    ],
)
def test_invalid_requests_for_events_are_refused(
    engine: Engine, query: str, method: str, status: int, error_text: str, trends: Trends
) -> None:
    wire, events = FakeWire(query, method), EventStream(engine, trends)
    asyncio.run(events(wire.scope, wire.receive, wire.send))
    assert wire.status == status
    assert error_text in json.loads(wire.bodies[0])["error"]
    assert events.open_streams == 0


def test_listeners_over_the_limit_are_refused_until_one_leaves(engine: Engine, trends: Trends) -> None:
    async def run() -> None:
        events, wires = EventStream(engine, trends, max_streams=2), [FakeWire(), FakeWire()]
        tasks = [asyncio.create_task(events(wire.scope, wire.receive, wire.send)) for wire in wires]
        await asyncio.gather(*(wire.body_sent.wait() for wire in wires))
        late = FakeWire()
        await events(late.scope, late.receive, late.send)
        assert late.status == 503
        assert "open 2 times" in json.loads(late.bodies[0])["error"]
        wires[0].disconnected.set()
        await tasks[0]
        later = FakeWire()
        task = asyncio.create_task(events(later.scope, later.receive, later.send))
        await later.body_sent.wait()
        assert later.status == 200
        events.stop()
        await asyncio.gather(task, tasks[1])

    asyncio.run(asyncio.wait_for(run(), 60))


def test_events_end_when_the_server_stops(engine: Engine, trends: Trends) -> None:
    async def run() -> None:
        events, wire = EventStream(engine, trends), FakeWire()
        task = asyncio.create_task(events(wire.scope, wire.receive, wire.send))
        await wire.body_sent.wait()
        events.stop()
        await task
        assert wire.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        late = FakeWire()
        await events(late.scope, late.receive, late.send)
        assert late.status == 503

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("ending", ["patience", "stop", "gone"])
def test_listener_that_reads_nothing_is_dropped(engine: Engine, ending: str, trends: Trends) -> None:
    async def run() -> None:
        events, wire = EventStream(engine, trends, send_timeout=0.05 if ending == "patience" else 60), FakeWire()
        wire.is_stuck = True
        task = asyncio.create_task(events(wire.scope, wire.receive, wire.send))
        await wire.body_sent.wait()
        if ending == "stop":
            events.stop()
        elif ending == "gone":
            wire.disconnected.set()
        await task
        assert events.open_streams == 0
        assert len(wire.bodies) == 1
        events.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def series(client: TestClient[Litestar], name: str) -> dict[str, Any]:
    response = client.get("/grps/v1/monitor/series", params={"name": name})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json;charset=utf-8"
    return response.json()


def test_grps_series_are_trends_of_174_points(clock: Clock, engine: Engine, trends: Trends) -> None:
    # Without its lifespan, the application does not measure the process, which would replace the readings below.
    client = TestClient(app_of(engine, WebPage(engine, trends)))
    for _ in range(3):
        trends.observe(EVENT)
    trends.observe(FAILURE)
    trends.add_readings(Readings(in_flight=0, waiting=0, cpu=0.5, memory=machine_memory() / 4))
    clock.now += 2
    expected = {
        "*qps": (2.0, 2.0, 4.0),
        "*fail_rate(%)": (25.0, 25.0, 25.0),
        "*latency_avg(ms)": (20.0, 20.0, 20.0),
        "*latency_max(ms)": (20.0, 20.0, 20.0),
        "*cpu_usage(%)": (50.0, 50.0, 50.0),
        "*mem_usage(%)": (25.0, 25.0, 25.0),
    }
    assert {*expected, "*latency_cdf(ms)"} == set(SERIES)
    for name, (day, minute, second) in expected.items():
        points = series(client, name)
        assert points["label"] == "trend"
        assert [position for position, _ in points["data"]] == list(range(174))
        values = dict(points["data"])
        # The latest day, hour and minute are incomplete; the requests are in the second before the last.
        assert (values[29], values[53], values[113], values[172]) == (day, day, minute, second), name
        assert sum(value != 0 for value in values.values()) == 4


def test_grps_latency_distribution_covers_the_last_second(
    client: TestClient[Litestar], clock: Clock, engine: Engine, trends: Trends
) -> None:
    positions = [*range(10, 100, 10), *range(91, 102)]
    for latency in range(1, 1001):
        trends.observe(msgspec.structs.replace(EVENT, total=latency * 100_000))
    clock.now += 1
    points = series(client, "*latency_cdf(ms)")
    assert points["label"] == "cdf"
    assert [position for position, _ in points["data"]] == positions
    expected = [{100: 99.9, 101: 100}.get(position, position) for position in positions]
    assert [value for _, value in points["data"]] == pytest.approx(expected, rel=0.031)
    clock.now += 1
    assert series(client, "*latency_cdf(ms)")["data"] == [[position, 0] for position in positions]


@pytest.mark.parametrize("name", ["", "qps", "*qps(inc/s)", "*gpu0_usage(%)", "\x00", "x" * 5000])
def test_unknown_grps_series_is_key_not_found(client: TestClient[Litestar], name: str) -> None:
    response = client.get("/grps/v1/monitor/series", params={"name": name})
    assert (response.status_code, response.text) == (200, "key not found")
    assert response.headers["content-type"].startswith("text/html")


def test_snapshot_counts_inferences_over_http(
    client: TestClient[Litestar], clock: Clock, engine: Engine, trends: Trends
) -> None:
    assert infer(client, "detector", image_input(), image_input(name="b")).status_code == 200
    assert infer(client, "detector").status_code == 400
    assert infer(client, "missing", image_input()).status_code == 404
    clock.now += 1
    snapshot = take_snapshot(engine, trends, "60s")
    assert (snapshot.total.requests, snapshot.total.failures) == (3, 2)
    detector = snapshot.models[1]
    assert (detector.requests, detector.failures, detector.batch) == (2, 1, 2)


@pytest.mark.slow
def test_open_event_streams_do_not_delay_the_stop_of_the_server() -> None:
    with run_server("--model", "fixtures/models/classifier", "--drain-timeout", "600") as server:
        port = int(server.address.rpartition(":")[2])
        with httpx.stream(
            "GET", f"{server.address}/page/events", headers={"accept-encoding": "gzip"}, timeout=60
        ) as response:
            assert "content-encoding" not in response.headers
            lines = response.iter_lines()
            first, gap, second = next(lines), next(lines), next(lines)
            assert json.loads(first.removeprefix("data: "))["age"] < json.loads(second.removeprefix("data: "))["age"]
            assert gap == ""
            # A second client sends a request but reads nothing.
            with socket.create_connection(("127.0.0.1", port)) as silent:
                silent.sendall(b"GET /page/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert silent.recv(12) == b"HTTP/1.1 200"
                # A stop that waits for the event streams would take ten minutes.
                server.process.send_signal(signal.SIGTERM)
                assert server.wait() == 0
            assert list(lines)[-1:] in ([], [""])


@pytest.mark.parametrize("path", ["/page/models.json", "/page/samples/scene.jpg", "/page/repository"])
def test_metrics_only_page_serves_no_other_view(engine: Engine, path: str, trends: Trends) -> None:
    with TestClient(app_of(engine, WebPage(engine, trends, full=False))) as client:
        assert client.get("/", headers={"accept": CHROME}).json()["status"] == "alive"
        assert client.get(path).status_code == 404
        html = client.get("/grps/v1/monitor/metrics").text
        assert 'data-views="metrics" data-opens="metrics"' in html
        assert client.get("/page/metrics.js").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "complete"),
    [
        ([], True),
        (["--no-page"], False),
        (["--host", "0.0.0.0", "--insecure"], False),
        (["--host", "0.0.0.0", "--insecure", "--page"], True),
    ],
)
def test_page_is_served_on_loopback_or_if_enabled(arguments: list[str], complete: bool) -> None:
    with run_server("--model", "fixtures/models/classifier", *arguments) as server:
        response = httpx.get(server.address, headers={"accept": CHROME}, timeout=60)
        assert response.headers["content-type"].startswith("text/html" if complete else "application/json")
        assert httpx.get(f"{server.address}/page/models.json", timeout=60).status_code == (200 if complete else 404)
        assert httpx.get(f"{server.address}/grps/v1/monitor/metrics", timeout=60).status_code == 200


@given(age=st.floats(0, 1e7))
def test_every_second_has_one_reading_although_timers_drift(age: float) -> None:
    for drift in (-0.4, -1e-9, 0.0, 1e-9, 0.4):
        assert int(age + seconds_until_sample(age) + drift) == int(age) + 1


@pytest.mark.slow
def test_snapshot_has_cpu_and_memory_of_the_process() -> None:
    with run_server("--model", "fixtures/models/classifier") as server:
        with httpx.stream("GET", f"{server.address}/page/events", timeout=60) as response:
            snapshots = (json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line)
            snapshot = next(snapshot for snapshot in snapshots if snapshot["now"]["memory"])
        assert 2**20 < snapshot["now"]["memory"] < snapshot["machine_memory"]
        assert 0 <= snapshot["now"]["cpu"] < 100
        assert server.stop() == 0
