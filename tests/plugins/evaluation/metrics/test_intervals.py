"""Intervals of shares."""

import pytest

from app.plugins.evaluation.metrics.intervals import wilson


@pytest.mark.parametrize(
    ("share", "size", "expected"), [(0.5, 10, (0.2366, 0.7634)), (1.0, 20, (0.8389, 1.0)), (0.0, 1, (0.0, 0.7935))]
)
def test_interval_is_that_of_wilson(share: float, size: float, expected: tuple[float, float]) -> None:
    interval = wilson(share, size)
    # Values of statsmodels.stats.proportion.proportion_confint(method="wilson").
    assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-4)
