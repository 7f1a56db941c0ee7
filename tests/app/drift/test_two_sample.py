"""Two-sample tests of one feature, compared with SciPy."""

import importlib
from typing import Any

import numpy as np
import pytest

from app.drift.two_sample import cramer_von_mises, kolmogorov_smirnov

STATS: Any = importlib.import_module("scipy.stats")

CASES = [(50, 40, 0.0), (300, 200, 0.1), (500, 300, 0.2), (100, 100, 1.0), (30, 300, 0.3)]


@pytest.mark.parametrize(("n", "m", "shift"), CASES)
def test_statistics_and_p_values_equal_scipy(n: int, m: int, shift: float) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.normal(size=n), rng.normal(shift, size=m)
    expected = STATS.ks_2samp(first, second, method="asymp")
    assert kolmogorov_smirnov(first, second)[0] == pytest.approx(expected.statistic)
    assert kolmogorov_smirnov(first, second)[1] == pytest.approx(expected.pvalue, rel=0.5, abs=0.03)
    expected = STATS.cramervonmises_2samp(first, second, method="asymptotic")
    assert cramer_von_mises(first, second) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("test", [kolmogorov_smirnov, cramer_von_mises])
def test_equal_constants_are_no_drift(test: Any) -> None:
    assert test(np.zeros(50), np.zeros(40)) == (0, 1)


@pytest.mark.parametrize("test", [kolmogorov_smirnov, cramer_von_mises])
def test_different_constants_are_drift(test: Any) -> None:
    assert test(np.zeros(50), np.ones(40))[1] < 1e-9


@pytest.mark.parametrize("test", [kolmogorov_smirnov, cramer_von_mises])
def test_false_alarm_rate_with_ties_stays_below_the_level(test: Any) -> None:
    rng = np.random.default_rng(0)
    values = [rng.poisson(0.5, (2, 100)).astype(float) for _ in range(100)]
    assert np.mean([test(*pair)[1] <= 0.05 for pair in values]) <= 0.07
