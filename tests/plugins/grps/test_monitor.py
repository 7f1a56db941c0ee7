"""The metrics of GRPS: the series that its tools poll, and the page."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.request_context import RequestContext
from app.core.observers.metrics import Metrics
from app.plugins.grps.monitor import Monitor
from tasks.inference.error import ErrorKind
from tests.support.servers.apps import app_with_parts
from tests.support.servers.grpc_server import build_engine

EVENT = RequestContext(protocol="kserve-v2", request_id="1", model_name="detector", batch_size=2, total=20_000_000)
FAILURE = msgspec.structs.replace(EVENT, outcome=ErrorKind.INVALID_REQUEST, batch_size=0, total=1)


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> Monitor:
    return Monitor(build_engine(("detector", "classifier")), CollectorRegistry(), clock)


@pytest.fixture
def client(monitor: Monitor) -> Iterator[TestClient[Litestar]]:
    with TestClient(app_with_parts(monitor.engine, monitor.parts)) as client:
        yield client


def series(client: TestClient[Litestar], name: str) -> dict[str, Any]:
    response = client.get("/grps/v1/monitor/series", params={"name": name})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json;charset=utf-8"
    return response.json()


def test_series_are_trends_of_174_points(client: TestClient[Litestar], clock: Clock, monitor: Monitor) -> None:
    for _ in range(3):
        monitor.observe(EVENT)
    monitor.observe(msgspec.structs.replace(EVENT, explanation=True))
    monitor.observe(FAILURE)
    clock.now += 2
    expected = {
        "*qps": (2.0, 2.0, 4.0),
        "*fail_rate(%)": (25.0, 25.0, 25.0),
        "*latency_avg(ms)": (20.0, 20.0, 20.0),
        "*latency_max(ms)": (20.0, 20.0, 20.0),
    }
    for name, (day, minute, second) in expected.items():
        points = series(client, name)
        assert points["label"] == "trend"
        assert [position for position, _ in points["data"]] == list(range(174))
        values = dict(points["data"])
        # The latest day, hour and minute are incomplete; the requests are in the second before the last.
        assert (values[29], values[53], values[113], values[172]) == (day, day, minute, second), name
        assert sum(value != 0 for value in values.values()) == 4
    for name in ("*cpu_usage(%)", "*mem_usage(%)"):
        values = dict(series(client, name)["data"])
        assert values[29] == values[53] == values[113] == values[172] == values[173] > 0


def test_intervals_pass_and_are_forgotten(client: TestClient[Litestar], clock: Clock, monitor: Monitor) -> None:
    monitor.observe(EVENT)
    clock.now += 90
    rates = dict(series(client, "*qps")["data"])
    # One request in the first minute; 90 seconds have passed.
    assert (rates[29], rates[53], rates[112], rates[113]) == (0.01, 0.01, 0.02, 0)
    assert not any(rates[second] for second in range(114, 174))
    monitor.observe(EVENT)
    clock.now += 3 * 86400
    rates = dict(series(client, "*latency_max(ms)")["data"])
    assert [position for position, value in rates.items() if value] == [26]
    clock.now += 40 * 86400
    assert not any(value for _, value in series(client, "*latency_max(ms)")["data"])
    monitor.observe(EVENT)
    clock.now += 1
    assert dict(series(client, "*qps")["data"])[173] == 1


def test_distribution_covers_the_last_second(client: TestClient[Litestar], clock: Clock, monitor: Monitor) -> None:
    positions = [*range(10, 100, 10), *range(91, 102)]
    for latency in range(1, 1001):
        monitor.observe(msgspec.structs.replace(EVENT, total=latency * 100_000))
    clock.now += 1
    points = series(client, "*latency_cdf(ms)")
    assert points["label"] == "cdf"
    expected = [[position, {100: 99.9, 101: 100}.get(position, position)] for position in positions]
    assert points["data"] == expected
    clock.now += 1
    assert series(client, "*latency_cdf(ms)")["data"] == [[position, 0] for position in positions]


def test_unknown_series_is_key_not_found(client: TestClient[Litestar]) -> None:
    for name in ("", "qps", "*qps(inc/s)", "*gpu0_usage(%)", "\x00", "x" * 5000):
        response = client.get("/grps/v1/monitor/series", params={"name": name})
        assert (response.status_code, response.text) == (200, "key not found")
        assert response.headers["content-type"].startswith("text/html")


def test_page_and_home_show_requests_errors_and_latency_of_each_model(
    monitor: Monitor,
) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, monitor.engine.registry.owner)
    client = TestClient(app_with_parts(monitor.engine, Monitor(monitor.engine, registry).parts))
    for event in (EVENT, msgspec.structs.replace(EVENT, total=10_000_000, protocol="grps"), FAILURE):
        metrics.observe(event)
    metrics.observe(msgspec.structs.replace(EVENT, model_name="<script>"))
    metrics.observe(msgspec.structs.replace(EVENT, explanation=True))
    browser = {"accept": "text/html"}
    for path, root in (("/", ""), ("/grps/v1/monitor/metrics", "../../../")):
        response = client.get(path, headers=browser)
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "<tr><th>classifier<td>0<td>0<td>0.00 ms" in response.text
        assert "<tr><th>detector<td>3<td>1<td>15.00 ms" in response.text
        assert f'<a href="{root}metrics">' in response.text
        assert "script" not in response.text
    assert client.get("/").json()["status"] == "alive"
