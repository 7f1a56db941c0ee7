"""Tests whose p-value comes from shuffling which of two samples each image is of.

Images are what is shuffled, never what was found in them: findings of one image belong together.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ("PERMUTATIONS", "chi_square", "maximum_mean_discrepancy", "squared_distances", "tails")

PERMUTATIONS = 1000
"""A p-value is never below 1 / (PERMUTATIONS + 1), where no more of them are allowed."""

MOST_ROWS = 1000
"""Rows of one sample that are compared with one another: memory and time grow with their square."""

_BANDWIDTH_ROWS = 300
_TAIL = 0.05
_BLOCK = 4_000_000
"""Numbers of the permutations that are in memory at once."""

_Statistic = Callable[[NDArray[np.float32]], NDArray[np.floating]]
"""One value for each column of (n + m, k), in which an image of the second sample has 1 and the others 0."""


def maximum_mean_discrepancy(
    first: NDArray[np.float64], second: NDArray[np.float64], rng: np.random.Generator, most: int = PERMUTATIONS
) -> tuple[float, float]:
    """The squared maximum mean discrepancy (biased) of rows under a Gaussian kernel, and its p-value.

    The kernel's width is the median distance of two rows (Gretton et al., JMLR 13, 2012).

    Args:
        first: (n, d), of which `MOST_ROWS` at random are used.
        second: (m, d), likewise.
        rng: draws the rows and the permutations.
        most: permutations, of which more than `PERMUTATIONS` are drawn only while none reaches the value.
    """
    first, second = _some(first, rng), _some(second, rng)
    n, m = len(first), len(second)
    pooled = np.concatenate([first, second]).astype(np.float32)
    few = pooled[rng.choice(len(pooled), min(len(pooled), _BANDWIDTH_ROWS), replace=False)]
    median = float(np.median(squared_distances(few, few)[np.triu_indices(len(few), 1)]))
    kernel = np.exp(-squared_distances(pooled, pooled) / np.float32(max(median, 1e-12)))

    def discrepancy(chosen: NDArray[np.float32]) -> NDArray[np.float32]:
        weights = np.float32(1 / n) - np.float32(1 / n + 1 / m) * chosen
        return np.einsum("ij,ij->j", weights, kernel @ weights)

    return _shuffled(discrepancy, n, m, rng, most)


def chi_square(
    first: NDArray[np.int64], second: NDArray[np.int64], rng: np.random.Generator, most: int = PERMUTATIONS
) -> tuple[float, float]:
    """Pearson's chi-square of two samples' label counts, and its p-value.

    Args:
        first: (n, labels) how often each label was found in each image.
        second: (m, labels), likewise.
        rng: draws the permutations.
        most: permutations, as of `maximum_mean_discrepancy`.
    """
    pooled = np.concatenate([first, second]).astype(np.float32)
    pooled = pooled[:, pooled.sum(axis=0) > 0]
    if not pooled.size:
        return 0.0, 1.0
    totals = pooled.sum(axis=0, dtype=np.float64)

    def distance(chosen: NDArray[np.float32]) -> NDArray[np.float64]:
        mine = (pooled.T @ chosen).astype(np.float64)  # (labels, k)
        share = mine.sum(axis=0) / totals.sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            values = (1 / totals) @ np.square(mine - totals[:, None] * share) / (share * (1 - share))
        return np.nan_to_num(values, nan=0.0, posinf=0.0)

    return _shuffled(distance, len(first), len(second), rng, most)


def tails(
    columns: NDArray[np.float64], n: int, rng: np.random.Generator, most: int = PERMUTATIONS
) -> tuple[int, float]:
    """Whether some column has more than its share of the second sample among its largest or smallest twentieth.

    A few strange images among many, which move no mean, stand out here. The statistic is the largest excess of all
    columns in deviations of chance, so that columns which say the same cost nothing.

    Args:
        columns: (n + m, d) numbers of both samples.
        n: images of the first sample.
        rng: draws the permutations.
        most: permutations, as of `maximum_mean_discrepancy`.

    Returns:
        The column with the largest excess, and the p-value of all.
    """
    total = len(columns)
    m, size = total - n, max(1, math.ceil(_TAIL * total))
    both = np.concatenate([columns, -columns], axis=1)
    # What is as large as the next is left out: of equal values none is larger.
    inside = (both > -np.partition(-both, size, axis=0)[size]).astype(np.float32)
    sizes = inside.sum(axis=0, dtype=np.float64)
    if not sizes.any():
        return 0, 1.0
    expected = sizes * m / total
    deviation = np.sqrt(np.maximum(expected * (n / total) * (total - sizes) / (total - 1), 1e-12))

    def excess(chosen: NDArray[np.float32]) -> NDArray[np.float64]:
        return (inside.T @ chosen - expected[:, None]) / deviation[:, None]

    given = excess(np.repeat([0.0, 1.0], [n, m]).astype(np.float32)[:, None])
    found = _shuffled(lambda chosen: excess(chosen).max(axis=0), n, m, rng, most)[1]
    return int(given[:, 0].argmax()) % columns.shape[1], found


def squared_distances(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, m) squared Euclidean distances of (n, d) and (m, d) rows."""
    products = first @ second.T
    norms = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1)[None, :]
    return np.maximum(norms - 2 * products, 0)


def _some(rows: NDArray[np.float64], rng: np.random.Generator, most: int = MOST_ROWS) -> NDArray[np.float64]:
    return rows if len(rows) <= most else rows[np.sort(rng.choice(len(rows), most, replace=False))]


def _shuffled(statistic: _Statistic, n: int, m: int, rng: np.random.Generator, most: int) -> tuple[float, float]:
    """The value of the samples as they are, and the share of shuffled ones that reach it.

    Equal ones count, but for what rounding makes of them. While none has reached it, more are drawn, up to `most`.
    """
    column = np.repeat([0.0, 1.0], [n, m]).astype(np.float32)
    block = max(1, min(PERMUTATIONS, _BLOCK // (n + m)))
    value, drawn, reached = 0.0, 0, 0
    while drawn < PERMUTATIONS or (not reached and drawn < most):
        shuffled = rng.permuted(np.tile(column, (block, 1)), axis=1).T
        # The samples as they are go through the same products as the others, and are rounded alike.
        values = statistic(np.column_stack([column, shuffled]))
        value = float(values[0])
        reached += int(np.count_nonzero(values[1:] >= value - 1e-7 - 1e-6 * abs(value)))
        drawn += block
    return value, (reached + 1) / (drawn + 1)
