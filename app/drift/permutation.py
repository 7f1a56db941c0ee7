"""Tests whose p-value comes from shuffling which of two samples each image is of.

Images are what is shuffled, never what was found in them: findings of one image belong together.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ("PERMUTATIONS", "chi_square", "maximum_mean_discrepancy", "squared_distances")

PERMUTATIONS = 1000
"""A p-value is never below 1 / (PERMUTATIONS + 1)."""

MOST_ROWS = 1000
"""Rows of one sample that are compared with one another: memory and time grow with their square."""

_BANDWIDTH_ROWS = 300


def maximum_mean_discrepancy(
    first: NDArray[np.float64], second: NDArray[np.float64], rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> tuple[float, float]:
    """The squared maximum mean discrepancy (biased) of rows under a Gaussian kernel, and its p-value.

    The kernel's width is the median distance of two rows (Gretton et al., JMLR 13, 2012).

    Args:
        first: (n, d), of which `MOST_ROWS` at random are used.
        second: (m, d), likewise.
        rng: draws the rows and the permutations.
        permutations: how many.
    """
    first, second = _some(first, rng), _some(second, rng)
    n, m = len(first), len(second)
    pooled = np.concatenate([first, second]).astype(np.float32)
    few = pooled[rng.choice(len(pooled), min(len(pooled), _BANDWIDTH_ROWS), replace=False)]
    median = float(np.median(squared_distances(few, few)[np.triu_indices(len(few), 1)]))
    kernel = np.exp(-squared_distances(pooled, pooled) / np.float32(max(median, 1e-12)))
    weights = _weights(n, m, rng, permutations)
    values = np.einsum("ij,ij->j", weights, kernel @ weights)
    return float(values[0]), _share_at_least(values)


def chi_square(
    first: NDArray[np.int64], second: NDArray[np.int64], rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> tuple[float, float]:
    """Pearson's chi-square of two samples' label counts, and its p-value.

    Args:
        first: (n, labels) how often each label was found in each image.
        second: (m, labels), likewise.
        rng: draws the permutations.
        permutations: how many.
    """
    n, m = len(first), len(second)
    pooled = np.concatenate([first, second]).astype(np.float64)
    pooled = pooled[:, pooled.sum(axis=0) > 0]
    if not pooled.size:
        return 0.0, 1.0
    totals = pooled.sum(axis=0)
    chosen = (_weights(n, m, rng, permutations) > 0).astype(np.float64)
    mine = pooled.T @ chosen  # (labels, 1 + permutations)
    share = mine.sum(axis=0) / totals.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.square(mine - totals[:, None] * share).T @ (1 / totals) / (share * (1 - share))
    values = np.nan_to_num(values, nan=0.0, posinf=0.0)
    return float(values[0]), _share_at_least(values)


def squared_distances(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, m) squared Euclidean distances of (n, d) and (m, d) rows."""
    products = first @ second.T
    norms = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1)[None, :]
    return np.maximum(norms - 2 * products, 0)


def _some(rows: NDArray[np.float64], rng: np.random.Generator, most: int = MOST_ROWS) -> NDArray[np.float64]:
    return rows if len(rows) <= most else rows[np.sort(rng.choice(len(rows), most, replace=False))]


def _weights(n: int, m: int, rng: np.random.Generator, permutations: int) -> NDArray[np.float32]:
    """(n + m, 1 + permutations): 1/n for images of the first sample, -1/m for the others; as is, then shuffled."""
    column = np.concatenate([np.full(n, 1 / n), np.full(m, -1 / m)]).astype(np.float32)
    shuffled = rng.permuted(np.tile(column, (permutations, 1)), axis=1).T
    return np.column_stack([column, shuffled])


def _share_at_least(values: NDArray[np.floating]) -> float:
    """The p-value of the first of `values` among all; equal ones count, but for what rounding makes of them."""
    slack = 1e-9 + 1e-6 * abs(float(values[0]))
    return float(np.count_nonzero(values[1:] >= values[0] - slack) + 1) / len(values)
