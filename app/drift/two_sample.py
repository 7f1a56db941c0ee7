"""Two-sample tests of one number, in NumPy only, so that the server does not need SciPy.

Both are asymptotic and do not correct for ties, which makes them conservative for repeated values.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ("cramer_von_mises", "kolmogorov_smirnov")

Gaps: TypeAlias = NDArray[np.float64]

_SERIES_TERMS = 100
_TERMS = 20
_STEPS = np.linspace(0, 12, 400)
_MIN_P = 1e-12
"""Smallest Cramér-von Mises p-value; rounding dominates below it."""


def kolmogorov_smirnov(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[float, float]:
    """Return the largest distance of the two cumulative distributions, and its two-sided p-value.

    The p-value is Kolmogorov's limit with Stephens' correction for finite samples (J. R. Stat. Soc. B 32, 1970).
    """
    n, m = len(first), len(second)
    distance = float(np.abs(_gaps(first, second, "right")).max())
    root = np.sqrt(n * m / (n + m))
    statistic = (root + 0.12 + 0.11 / root) * distance
    if statistic < 0.2:
        return distance, 1.0
    k = np.arange(1, _SERIES_TERMS + 1)
    return distance, float(np.clip(2 * np.sum((-1.0) ** (k - 1) * np.exp(-2 * np.square(k * statistic))), 0, 1))


def cramer_von_mises(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[float, float]:
    """Return the statistic T, the mean squared distance of the two cumulative distributions, and its p-value.

    T and its limit are Anderson's (Ann. Math. Statist. 33, 1962). For repeated values, the distributions are evaluated
    in the middle of their steps.
    """
    n, m = len(first), len(second)
    total = n + m
    gaps = _gaps(first, second, "right")
    if len(np.unique(np.concatenate([first, second]))) < total:
        gaps = (gaps + _gaps(first, second, "left")) / 2
    statistic = n * m / total**2 * float(np.sum(np.square(gaps)))
    expected = (1 + 1 / total) / 6
    variance = (total + 1) * (4 * n * m * total - 3 * (n * n + m * m) - 2 * n * m) / (45 * total * total * 4 * n * m)
    normal = 1 / 6 + (statistic - expected) / np.sqrt(45 * variance)
    return statistic, 1.0 if normal < 0.003 else float(np.clip(1 - _limit(normal), _MIN_P, 1))


def _gaps(first: NDArray[np.float64], second: NDArray[np.float64], side: Literal["left", "right"]) -> Gaps:
    """Return the difference of the two cumulative distributions at every value; `side` includes or excludes it."""
    pooled = np.concatenate([first, second])
    below = [np.searchsorted(np.sort(sample), pooled, side=side) / len(sample) for sample in (first, second)]
    return below[0] - below[1]


def _limit(x: float) -> float:
    """Return the limiting distribution function of the Cramér-von Mises statistic (Csörgő and Faraway, 1996, 1.2)."""
    k = np.arange(_TERMS)
    # gamma(k + 1/2) / (gamma(1/2) k!), term by term
    coefficients = np.cumprod(np.concatenate([[1.0], (k[:-1] + 0.5) / (k[:-1] + 1)]))
    y = np.square(4 * k + 1) / (16 * x)
    with np.errstate(under="ignore"):
        terms = coefficients * np.sqrt(4 * k + 1) * np.exp(-y) * _bessel_k(0.25, y)
    return float(terms.sum() / (np.pi * np.sqrt(x)))


def _bessel_k(order: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the modified Bessel function K: the integral of exp(-x cosh t) cosh(order t) over t > 0."""
    with np.errstate(under="ignore"):
        values = np.exp(-x[:, None] * np.cosh(_STEPS)) * np.cosh(order * _STEPS)
    return np.trapezoid(values, _STEPS, axis=1)
