"""What p-values are worth when there are many of them, and PSI, which has none."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ("benjamini_hochberg", "holm", "population_stability")

_PARTS = 10


def holm(values: Sequence[float]) -> list[float]:
    """P-values adjusted so that the chance of any false alarm among them is their level (Holm, 1979)."""
    order = np.argsort(values)
    adjusted = np.maximum.accumulate(np.asarray(values)[order] * np.arange(len(values), 0, -1))
    return _in_order(adjusted, order)


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """P-values adjusted so that their level is the share of false alarms (Benjamini and Hochberg, 1995)."""
    order = np.argsort(values)
    ranked = np.asarray(values)[order] * len(values) / np.arange(1, len(values) + 1)
    return _in_order(np.minimum.accumulate(ranked[::-1])[::-1], order)


def population_stability(baseline: NDArray[np.float64], production: NDArray[np.float64]) -> float:
    """The population stability index over the tenths of the baseline; 0 for the same shares."""
    edges = np.unique(np.quantile(baseline, np.linspace(0, 1, _PARTS + 1)[1:-1]))
    shares = [_shares(np.searchsorted(edges, each, side="right"), len(edges) + 1) for each in (baseline, production)]
    return float(np.sum((shares[1] - shares[0]) * np.log(shares[1] / shares[0])))


def _shares(places: NDArray[np.int64], parts: int) -> NDArray[np.float64]:
    """Half a count in each part besides, so that an empty one has no infinite weight."""
    counts = np.bincount(places, minlength=parts) + 0.5
    return counts / counts.sum()


def _in_order(adjusted: NDArray[np.float64], order: NDArray[np.int64]) -> list[float]:
    result = np.empty(len(adjusted))
    result[order] = np.minimum(adjusted, 1)
    return result.tolist()
