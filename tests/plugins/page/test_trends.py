"""The figures of the web page, as snapshots and as the series that GRPS tools poll."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar
from litestar.testing import TestClient

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.plugins.page.page import WebPage, seconds_until_sample
from app.plugins.page.request_history import Readings
from app.plugins.page.series import SERIES
from app.plugins.page.snapshot import PERCENTILES, machine_memory, take_snapshot, with_model_detail
from app.plugins.page.trends import Trends
from tasks.inference.error import ErrorKind
from tests.plugins.page.pages import Clock, app_of
from tests.support.data.chariot import image_input, infer

EVENT = RequestContext(protocol="kserve-v2", request_id="1", model_name="detector", batch_size=2, total=20_000_000)
FAILURE = msgspec.structs.replace(EVENT, outcome=ErrorKind.INVALID_REQUEST, batch_size=0, total=1)


def test_snapshot_has_the_figures_of_the_window(engine: Engine, clock: Clock, trends: Trends) -> None:
    for latency in range(1, 101):
        trends.observe(msgspec.structs.replace(EVENT, total=latency * 1_000_000))
    trends.observe(FAILURE)
    trends.observe(msgspec.structs.replace(FAILURE, model_name="stranger", model_version=""))
    trends.add_readings(Readings(in_flight=3, waiting=1, cpu=0.25, memory=5_000_000))
    clock.now += 10
    snapshot = with_model_detail(trends, take_snapshot(engine, trends, "60s"), "detector")
    assert (snapshot.total_requests, snapshot.interval, snapshot.age) == (102, 1, 10)
    assert (snapshot.total.requests, snapshot.total.failures, snapshot.total.rate) == (102, 2, 10.2)
    classifier, detector = snapshot.models
    assert (classifier.name, classifier.requests, classifier.mean, classifier.slowest) == ("classifier", 0, None, None)
    assert classifier.percentiles == [None] * len(PERCENTILES)
    assert (detector.name, detector.state) == ("detector", "READY")
    assert (detector.requests, detector.failures, detector.mean) == (101, 1, 50.5)
    assert (detector.slowest, detector.batch) == (100, 2)
    assert detector.percentiles == pytest.approx([50, 75, 90, 95, 99, 100, 100], rel=0.03)
    assert detector.trend == [None] * 50 + [101] + [0] * 9
    assert snapshot.detail.name == "detector"
    assert snapshot.detail.errors[50] == pytest.approx(100 / 101, rel=1e-4)
    assert snapshot.detail.errors[51:] == [None] * 9
    assert snapshot.detail.p50[50] == pytest.approx(50, rel=0.03)
    assert snapshot.detail.p99[50] == pytest.approx(99, rel=0.03)
    assert snapshot.detail.batches == [("2", 100)]
    assert snapshot.process["cpu"][50:52] == [0.25, None]
    assert (snapshot.now.cpu, snapshot.now.memory, snapshot.now.in_flight) == (0.25, 5_000_000, 0)


def test_every_window_counts_the_same_requests(engine: Engine, clock: Clock, trends: Trends) -> None:
    trends.observe(EVENT)
    trends.observe(FAILURE)
    clock.now += 30
    for window, known in (("60s", 30), ("60m", 1), ("24h", 1)):
        snapshot = take_snapshot(engine, trends, window)
        assert (snapshot.window, snapshot.total.requests, snapshot.total.failures) == (window, 2, 1)
        assert snapshot.total.rate == pytest.approx(2 / 30, rel=1e-3)
        assert len(snapshot.total.trend) == len(snapshot.detail.p90) == len(snapshot.process["memory"])
        assert sum(rate is not None for rate in snapshot.total.trend) == known


def test_percentile_is_never_above_the_slowest_request(engine: Engine, clock: Clock, trends: Trends) -> None:
    trends.observe(msgspec.structs.replace(EVENT, total=10_600_000))
    clock.now += 1
    snapshot = with_model_detail(trends, take_snapshot(engine, trends, "60s"), "detector")
    assert snapshot.total.slowest == 10.6
    assert max(percentile for percentile in snapshot.total.percentiles if percentile is not None) <= 10.6
    assert snapshot.detail.p99[-1] is not None
    assert snapshot.detail.p99[-1] <= 10.6


def test_snapshot_has_the_reason_why_the_server_is_not_ready(engine: Engine, trends: Trends) -> None:
    assert take_snapshot(engine, trends, "60s").not_ready_reason == ""
    engine.online = False
    assert "offline" in take_snapshot(engine, trends, "60s").not_ready_reason


def test_details_of_an_unknown_model_are_those_of_all_models(engine: Engine, trends: Trends) -> None:
    snapshot = take_snapshot(engine, trends, "60s")
    for model in ("", "stranger", "<script>", "detector\x00"):
        assert with_model_detail(trends, snapshot, model) is snapshot
    assert snapshot.detail.name == ""


def test_snapshot_is_small_and_fast(engine: Engine, clock: Clock, trends: Trends) -> None:
    for latency in range(1, 600):
        trends.observe(msgspec.structs.replace(EVENT, total=latency * 500_000))
        clock.now += 0.1
    snapshot = with_model_detail(trends, take_snapshot(engine, trends, "60s"), "detector")
    assert len(msgspec.json.encode(snapshot)) < 12_000
    began = time.thread_time()
    for _ in range(20):
        take_snapshot(engine, trends, "60s")
    assert (time.thread_time() - began) / 20 < 0.02


@pytest.mark.parametrize(("content", "limit"), [("max\n", 0), ("", 0), (f"{2**62}\n", 0), ("1048576\n", 2**20)])
def test_machine_memory_is_the_smaller_of_cgroup_limit_and_physical_memory(
    tmp_path: Path, content: str, limit: int
) -> None:
    total = machine_memory(tmp_path / "none")
    (tmp_path / "memory.max").write_text(content)
    assert machine_memory(tmp_path / "memory.max") == (limit or total) <= total


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


def test_unknown_grps_series_is_key_not_found(client: TestClient[Litestar]) -> None:
    for name in ("", "qps", "*qps(inc/s)", "*gpu0_usage(%)", "\x00", "x" * 5000):
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


@given(age=st.floats(0, 1e7))
def test_every_second_has_one_reading_although_timers_drift(age: float) -> None:
    for drift in (-0.4, -1e-9, 0.0, 1e-9, 0.4):
        assert int(age + seconds_until_sample(age) + drift) == int(age) + 1
