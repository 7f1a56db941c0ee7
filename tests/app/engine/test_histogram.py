"""Latencies in buckets: what is known of them is right but for the error that is promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.histogram import BUCKETS, RELATIVE_ERROR, Counts, bucket_of, cumulative, quantiles

FRACTIONS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)

LATENCIES = st.lists(st.integers(10_000, 1_000_000_000_000), min_size=1, max_size=300)


def counted(latencies: list[int]) -> Counts:
    return np.bincount([bucket_of(each) for each in latencies], minlength=BUCKETS).astype(np.uint64)


@given(LATENCIES)
def test_quantiles_are_those_of_the_latencies_within_the_error(latencies: list[int]) -> None:
    exact = np.quantile(np.array(latencies, np.float64), FRACTIONS, method="inverted_cdf")
    found = quantiles(counted(latencies), FRACTIONS)
    assert np.all(np.abs(found - exact) <= exact * (RELATIVE_ERROR + 1e-9))


@given(LATENCIES, LATENCIES)
def test_counts_of_two_spans_add_up_to_the_counts_of_both(first: list[int], second: list[int]) -> None:
    assert (counted(first) + counted(second)).tolist() == counted(first + second).tolist()


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_a_longer_latency_is_in_no_lower_bucket(one: int, other: int) -> None:
    lower, higher = sorted((one, other))
    assert 0 <= bucket_of(lower) <= bucket_of(higher) < BUCKETS


@pytest.mark.parametrize(
    ("latency", "shown"), [(0, 10_000), (1, 10_000), (10_000, 10_000), (10**12, 10**12), (10**15, 10**12)]
)
def test_the_ends_hold_whatever_is_beyond_them(latency: int, shown: float) -> None:
    (found,) = quantiles(counted([latency]), [0.5])
    assert found == pytest.approx(shown, rel=2 * RELATIVE_ERROR)


def test_a_rank_is_the_smallest_that_reaches_the_share() -> None:
    # Of a thousand latencies the 999th is the first that 99.9 % do not exceed, and the last is the slow one.
    counts = counted([1_000_000] * 999 + [1_000_000_000])
    # 99.9 / 100 is a little more than 0.999 in floating point, and must not push the rank to the last.
    fast, slow = quantiles(counts, [99.9 / 100, 99.99 / 100])
    assert fast == pytest.approx(1_000_000, rel=RELATIVE_ERROR)
    assert slow == pytest.approx(1_000_000_000, rel=RELATIVE_ERROR)


def test_nothing_has_no_quantiles() -> None:
    assert np.isnan(quantiles(np.zeros(BUCKETS, np.uint64), FRACTIONS)).all()


def test_several_histograms_at_once() -> None:
    one, other = counted([1_000_000]), counted([5_000_000, 9_000_000])
    stacked = np.stack([one, other, np.zeros(BUCKETS, np.uint64)])
    found = quantiles(stacked, [0.5, 0.99])
    assert found.shape == (3, 2)
    assert found[0].tolist() == quantiles(one, [0.5, 0.99]).tolist()
    assert found[1].tolist() == quantiles(other, [0.5, 0.99]).tolist()
    assert np.isnan(found[2]).all()


@given(LATENCIES)
def test_the_cumulative_shares_bound_those_of_the_latencies(latencies: list[int]) -> None:
    points = cumulative(counted(latencies))
    assert points[-1][1] == 1.0
    assert points == sorted(points)
    for end, share in points:
        exact = np.mean(np.array(latencies, np.float64) <= end * (1 + 1e-9))
        assert share == pytest.approx(exact)


def test_nothing_has_no_cumulative_shares() -> None:
    assert cumulative(np.zeros(BUCKETS, np.uint64)) == []
