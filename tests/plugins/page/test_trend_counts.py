"""Trends over the last minute, hour, day and month, and their latency histograms."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.engine.request_context import RequestContext
from app.plugins.page.request_history import (
    BATCH_SIZES,
    BUCKETS,
    RELATIVE_ERROR,
    Counts,
    HistoryWindow,
    Readings,
    Resolution,
    bucket_of,
    quantiles,
)
from app.plugins.page.trends import MAX_MODELS, Trends
from tasks.inference.error import ErrorKind
from tests.plugins.page.pages import NAMES, Clock

EVENT = RequestContext(protocol="kserve-v2", request_id="1", model_name="detector", batch_size=1, total=2_000_000)
FAILURE = msgspec.structs.replace(EVENT, outcome=ErrorKind.INVALID_REQUEST)


def sums(window: HistoryWindow) -> tuple[int, int, int, int]:
    return (int(window.requests.sum()), int(window.failures.sum()), int(window.latency.sum()), int(window.items.sum()))


def test_second_is_reported_after_it_is_over(trends: Trends, clock: Clock) -> None:
    trends.observe(EVENT)
    clock.now += 0.5
    assert trends.total(Resolution.SECONDS).requests.sum() == 0
    assert trends.requests == 1
    clock.now += 0.5
    assert trends.total(Resolution.SECONDS).requests[-1] == 1
    clock.now += 3
    assert trends.total(Resolution.SECONDS).requests.tolist()[-5:] == [0, 1, 0, 0, 0]


def test_covered_seconds_count_from_the_start_to_the_last_complete_second(trends: Trends, clock: Clock) -> None:
    clock.now += 90
    assert trends.total(Resolution.SECONDS).covered.tolist() == [1] * 60
    assert trends.total(Resolution.MINUTES).covered.tolist() == [0] * 58 + [60, 30]
    assert trends.total(Resolution.HOURS).covered.tolist() == [0] * 23 + [90]
    clock.now += 30
    assert trends.total(Resolution.MINUTES).covered.tolist() == [0] * 58 + [60, 60]


@pytest.mark.parametrize(
    ("size", "group"),
    [(0, "1"), (1, "1"), (2, "2"), (3, "3-4"), (4, "3-4"), (5, "5-8"), (8, "5-8"), (9, "9-16"), (256, "129-256"),
     (300, "257+")],
)  # fmt: skip
def test_batch_sizes_are_grouped_by_powers_of_two(trends: Trends, clock: Clock, size: int, group: str) -> None:
    trends.observe(msgspec.structs.replace(EVENT, batch_size=size))
    clock.now += 1
    counts = trends.total(Resolution.SECONDS).batches.sum(axis=0)
    assert [BATCH_SIZES[position] for position in np.flatnonzero(counts)] == [group]


def test_number_of_histories_is_bounded_and_removed_models_free_theirs() -> None:
    clock, models = Clock(), {f"m{index}" for index in range(MAX_MODELS + 1)}
    trends = Trends(lambda name: name in models, clock)

    def is_recorded(name: str) -> bool:
        trends.observe(msgspec.structs.replace(EVENT, model_name=name))
        clock.now += 1
        return bool(trends.for_model(name, Resolution.SECONDS).requests[-1])

    assert [is_recorded(f"m{index}") for index in range(MAX_MODELS + 1)] == [True] * MAX_MODELS + [False]
    models.remove("m0")
    assert is_recorded(f"m{MAX_MODELS}")
    assert trends.for_model("m0", Resolution.MINUTES).requests.sum() == 0
    assert trends.for_model("m1", Resolution.MINUTES).requests.sum() == 1


def test_gauges_are_means_and_gaps_are_nan(trends: Trends, clock: Clock) -> None:
    trends.add_readings(Readings(in_flight=2, waiting=0, cpu=0.5, memory=100))
    clock.now += 1
    trends.add_readings(Readings(in_flight=4, waiting=1, cpu=1.5, memory=300))
    clock.now += 2
    seconds, minutes = trends.gauges(Resolution.SECONDS), trends.gauges(Resolution.MINUTES)
    assert seconds["in_flight"][-3:-1].tolist() == [2, 4]
    assert np.isnan(seconds["in_flight"][[-4, -1]]).all()
    means = {"in_flight": 3, "waiting": 0.5, "cpu": 1.0, "memory": 200}
    assert {name: values[-1] for name, values in minutes.items()} == means
    assert trends.readings.cpu == 1.5


def test_returned_window_does_not_change_later(trends: Trends, clock: Clock) -> None:
    trends.observe(EVENT)
    clock.now += 1
    window = trends.total(Resolution.MINUTES)
    trends.observe(EVENT)
    clock.now += 1
    assert trends.total(Resolution.MINUTES).requests[-1] == 2
    assert window.requests[-1] == 1


ARRIVALS = st.lists(
    st.tuples(
        st.one_of(st.floats(0, 3), st.floats(0, 4000), st.floats(0, 90_000), st.floats(0, 400 * 86400)),
        st.sampled_from([*NAMES, "stranger", ""]),
        st.booleans(),
        st.integers(0, 10**11),
        st.integers(1, 40),
    ),
    max_size=40,
)


@given(ARRIVALS, st.sampled_from(Resolution))
def test_every_window_equals_a_count_over_all_requests(
    arrivals: list[tuple[float, str, bool, int, int]], resolution: Resolution
) -> None:
    clock = Clock()
    start = clock.now
    trends = Trends(NAMES.__contains__, clock)
    recorded: list[tuple[int, str, bool, int, int]] = []
    for wait, name, failed, latency, items in arrivals:
        clock.now += wait
        event = FAILURE if failed else EVENT
        trends.observe(msgspec.structs.replace(event, model_name=name, total=latency, batch_size=items))
        recorded.append((int(clock.now - start), name, failed, latency, items))
    clock.now += 1
    last = int(clock.now - start) - 1
    oldest = last // resolution.interval - resolution.size + 1
    for name in ("", *NAMES, "stranger"):
        window = trends.for_model(name, resolution) if name else trends.total(resolution)
        of_model = [arrival for arrival in recorded if not name or (arrival[1] == name and name != "stranger")]
        in_window = [arrival for arrival in of_model if arrival[0] // resolution.interval >= oldest]
        interval_counts = Counter(arrival[0] // resolution.interval - oldest for arrival in in_window)
        succeeded = [arrival for arrival in in_window if not arrival[2]]
        assert window.requests.tolist() == [interval_counts[position] for position in range(resolution.size)]
        assert sums(window) == (
            len(in_window),
            len(in_window) - len(succeeded),
            sum(arrival[3] for arrival in succeeded),
            sum(arrival[4] for arrival in succeeded),
        )
        assert window.slowest.max() == max((arrival[3] for arrival in succeeded), default=0)
        buckets = np.bincount([bucket_of(arrival[3]) for arrival in succeeded], minlength=BUCKETS)
        assert window.latencies.sum(axis=0).tolist() == buckets.tolist()


def test_concurrent_observations_are_all_counted(trends: Trends, clock: Clock) -> None:
    def repeat(change: Callable[[], object]) -> None:
        for _ in range(500):
            change()
            trends.total(Resolution.SECONDS)

    def tick() -> None:
        clock.now += 0.01

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(repeat, [partial(trends.observe, EVENT)] * 3 + [tick]))
    clock.now += 1
    assert trends.total(Resolution.HOURS).requests[-1] == 1500
    assert trends.for_model("detector", Resolution.HOURS).requests[-1] == 1500


FRACTIONS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)

LATENCIES = st.lists(st.integers(10_000, 1_000_000_000_000), min_size=1, max_size=300)


def counts_of(latencies: list[int]) -> Counts:
    return np.bincount(bucket_of(latencies), minlength=BUCKETS).astype(np.uint64)


@given(LATENCIES)
def test_quantiles_are_within_the_relative_error(latencies: list[int]) -> None:
    exact = np.quantile(np.array(latencies, np.float64), FRACTIONS, method="inverted_cdf")
    estimated = quantiles(counts_of(latencies), FRACTIONS)
    assert np.all(np.abs(estimated - exact) <= exact * (RELATIVE_ERROR + 1e-9))


@pytest.mark.parametrize(
    ("latency", "expected"), [(0, 10_000), (1, 10_000), (10_000, 10_000), (10**12, 10**12), (10**15, 10**12)]
)
def test_latencies_out_of_range_are_in_the_first_or_last_bucket(latency: int, expected: float) -> None:
    counts = counts_of([latency])
    assert len(counts) == BUCKETS
    (quantile,) = quantiles(counts, [0.5])
    assert quantile == pytest.approx(expected, rel=2 * RELATIVE_ERROR)


def test_quantile_is_the_smallest_latency_that_reaches_the_fraction() -> None:
    # The 999th of 1000 latencies is the 99.9 % quantile; the last one is slow.
    counts = counts_of([1_000_000] * 999 + [1_000_000_000])
    # In floating point, 99.9 / 100 is slightly above 0.999, which must not select the last rank.
    fast, slow = quantiles(counts, [99.9 / 100, 99.99 / 100])
    assert fast == pytest.approx(1_000_000, rel=RELATIVE_ERROR)
    assert slow == pytest.approx(1_000_000_000, rel=RELATIVE_ERROR)


def test_quantiles_of_stacked_histograms() -> None:
    one, other = counts_of([1_000_000]), counts_of([5_000_000, 9_000_000])
    stacked = np.stack([one, other, np.zeros(BUCKETS, np.uint64)])
    estimated = quantiles(stacked, [0.5, 0.99])
    assert estimated[:2].tolist() == [quantiles(counts, [0.5, 0.99]).tolist() for counts in (one, other)]
    # There are no latencies.
    assert np.isnan(estimated[2]).all()
