"""Latency histograms: results are within the documented error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plugins.page.request_history import BUCKETS, RELATIVE_ERROR, Counts, bucket_of, quantiles

FRACTIONS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)

LATENCIES = st.lists(st.integers(10_000, 1_000_000_000_000), min_size=1, max_size=300)


def counts_of(latencies: list[int]) -> Counts:
    return np.bincount(bucket_of(latencies), minlength=BUCKETS).astype(np.uint64)


@given(LATENCIES)
def test_quantiles_are_within_the_relative_error(latencies: list[int]) -> None:
    exact = np.quantile(np.array(latencies, np.float64), FRACTIONS, method="inverted_cdf")
    estimated = quantiles(counts_of(latencies), FRACTIONS)
    assert np.all(np.abs(estimated - exact) <= exact * (RELATIVE_ERROR + 1e-9))


@given(LATENCIES, LATENCIES)
def test_counts_of_two_lists_add_up_to_those_of_both(first: list[int], second: list[int]) -> None:
    assert (counts_of(first) + counts_of(second)).tolist() == counts_of(first + second).tolist()


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_bucket_never_decreases_with_the_latency(one: int, other: int) -> None:
    lower, higher = sorted((one, other))
    assert 0 <= bucket_of(lower) <= bucket_of(higher) < BUCKETS


@pytest.mark.parametrize(
    ("latency", "expected"), [(0, 10_000), (1, 10_000), (10_000, 10_000), (10**12, 10**12), (10**15, 10**12)]
)
def test_latencies_out_of_range_are_in_the_first_or_last_bucket(latency: int, expected: float) -> None:
    (quantile,) = quantiles(counts_of([latency]), [0.5])
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
