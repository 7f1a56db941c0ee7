"""Correct p-values for multiple tests, and compute the PSI, which has no p-value."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ("benjamini_hochberg", "holm", "population_stability")

_BINS = 10


def holm(values: Sequence[float]) -> list[float]:
    """Adjust p-values to control the probability of any false alarm (Holm, 1979)."""
    order = np.argsort(values)
    adjusted = np.maximum.accumulate(np.asarray(values)[order] * np.arange(len(values), 0, -1))
    return _in_order(adjusted, order)


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """Adjust p-values to control the share of false alarms (Benjamini and Hochberg, 1995)."""
    order = np.argsort(values)
    ranked = np.asarray(values)[order] * len(values) / np.arange(1, len(values) + 1)
    return _in_order(np.minimum.accumulate(ranked[::-1])[::-1], order)


def population_stability(baseline: NDArray[np.float64], production: NDArray[np.float64]) -> float:
    """Return the population stability index over the deciles of the baseline; 0 for equal shares."""
    edges = np.unique(np.quantile(baseline, np.linspace(0, 1, _BINS + 1)[1:-1]))
    samples = (baseline, production)
    shares = [_shares(np.searchsorted(edges, values, side="right"), len(edges) + 1) for values in samples]
    return float(np.sum((shares[1] - shares[0]) * np.log(shares[1] / shares[0])))


def _shares(bins: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return the share of each bin. Half a count is added, so that an empty bin has no infinite weight."""
    counts = np.bincount(bins, minlength=count) + 0.5
    return counts / counts.sum()


def _in_order(adjusted: NDArray[np.float64], order: NDArray[np.int64]) -> list[float]:
    result = np.empty(len(adjusted))
    result[order] = np.minimum(adjusted, 1)
    return result.tolist()
