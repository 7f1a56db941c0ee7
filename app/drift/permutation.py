"""Permutation tests for two samples of images.

The tests shuffle images, not single predictions, because the predictions of one image depend on each other.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ("PERMUTATIONS", "chi_square", "maximum_mean_discrepancy", "squared_distances", "tail_excess")

PERMUTATIONS = 1000
"""Default number of permutations. The p-value is at least 1 / (PERMUTATIONS + 1)."""

MAX_ROWS = 1000
"""Maximum number of rows of one sample: memory and time grow with its square."""

_BANDWIDTH_ROWS = 300
_TAIL = 0.05
_BLOCK = 4_000_000
"""Maximum number of permuted values in memory at once."""

_Statistic = Callable[[NDArray[np.float32]], NDArray[np.floating]]
"""Returns one value for each column of (n + m, k), in which images of the second sample have 1, and others 0."""


def maximum_mean_discrepancy(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    rng: np.random.Generator,
    max_permutations: int = PERMUTATIONS,
) -> tuple[float, float]:
    """Return the biased squared maximum mean discrepancy under a Gaussian kernel, and its p-value.

    The width of the kernel is the median distance of two rows (Gretton et al., JMLR 13, 2012).

    Args:
        first: (n, d); a random subset of `MAX_ROWS` is used.
        second: (m, d), likewise.
        rng: draws the rows and the permutations.
        max_permutations: maximum permutations; more than `PERMUTATIONS` are drawn only while none reaches the value.
    """
    first, second = _subsample(first, rng), _subsample(second, rng)
    n, m = len(first), len(second)
    pooled = np.concatenate([first, second]).astype(np.float32)
    bandwidth_rows = pooled[rng.choice(len(pooled), min(len(pooled), _BANDWIDTH_ROWS), replace=False)]
    median = float(
        np.median(squared_distances(bandwidth_rows, bandwidth_rows)[np.triu_indices(len(bandwidth_rows), 1)])
    )
    kernel = np.exp(-squared_distances(pooled, pooled) / np.float32(max(median, 1e-12)))

    def discrepancy(in_second: NDArray[np.float32]) -> NDArray[np.float32]:
        weights = np.float32(1 / n) - np.float32(1 / n + 1 / m) * in_second
        return np.einsum("ij,ij->j", weights, kernel @ weights)

    return _permutation_test(discrepancy, n, m, rng, max_permutations)


def chi_square(
    first: NDArray[np.int64], second: NDArray[np.int64], rng: np.random.Generator, max_permutations: int = PERMUTATIONS
) -> tuple[float, float]:
    """Return Pearson's chi-square of two samples' label counts, and its p-value.

    Args:
        first: (n, labels) the count of each label in each image.
        second: (m, labels), likewise.
        rng: draws the permutations.
        max_permutations: maximum permutations, as for `maximum_mean_discrepancy`.
    """
    pooled = np.concatenate([first, second]).astype(np.float32)
    pooled = pooled[:, pooled.sum(axis=0) > 0]
    if not pooled.size:
        return 0.0, 1.0
    totals = pooled.sum(axis=0, dtype=np.float64)

    def distance(in_second: NDArray[np.float32]) -> NDArray[np.float64]:
        second_counts = (pooled.T @ in_second).astype(np.float64)  # (labels, k)
        share = second_counts.sum(axis=0) / totals.sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            values = (1 / totals) @ np.square(second_counts - totals[:, None] * share) / (share * (1 - share))
        return np.nan_to_num(values, nan=0.0, posinf=0.0)

    return _permutation_test(distance, len(first), len(second), rng, max_permutations)


def tail_excess(
    columns: NDArray[np.float64], n: int, rng: np.random.Generator, max_permutations: int = PERMUTATIONS
) -> tuple[int, float]:
    """Test whether the second sample is overrepresented in the largest or smallest 5 % of some column.

    This detects a few outliers that do not change the mean. The statistic is the largest excess over all columns, in
    standard deviations under the null hypothesis. So redundant columns do not reduce its power.

    Args:
        columns: (n + m, d) numbers of both samples.
        n: number of images in the first sample.
        rng: draws the permutations.
        max_permutations: maximum permutations, as for `maximum_mean_discrepancy`.

    Returns:
        The column with the largest excess, and the p-value of the test.
    """
    total = len(columns)
    m, size = total - n, max(1, math.ceil(_TAIL * total))
    signed = np.concatenate([columns, -columns], axis=1)
    # Exclude values equal to the threshold: ties have no order.
    inside = (signed > -np.partition(-signed, size, axis=0)[size]).astype(np.float32)
    sizes = inside.sum(axis=0, dtype=np.float64)
    if not sizes.any():
        return 0, 1.0
    expected = sizes * m / total
    deviation = np.sqrt(np.maximum(expected * (n / total) * (total - sizes) / (total - 1), 1e-12))

    def excess(in_second: NDArray[np.float32]) -> NDArray[np.float64]:
        return (inside.T @ in_second - expected[:, None]) / deviation[:, None]

    observed = excess(np.repeat([0.0, 1.0], [n, m]).astype(np.float32)[:, None])
    p_value = _permutation_test(lambda chosen: excess(chosen).max(axis=0), n, m, rng, max_permutations)[1]
    return int(observed[:, 0].argmax()) % columns.shape[1], p_value


def squared_distances(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the (n, m) squared Euclidean distances of (n, d) and (m, d) rows."""
    products = first @ second.T
    norms = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1)[None, :]
    return np.maximum(norms - 2 * products, 0)


def _subsample(rows: NDArray[np.float64], rng: np.random.Generator, max_rows: int = MAX_ROWS) -> NDArray[np.float64]:
    return rows if len(rows) <= max_rows else rows[np.sort(rng.choice(len(rows), max_rows, replace=False))]


def _permutation_test(
    statistic: _Statistic, n: int, m: int, rng: np.random.Generator, max_permutations: int
) -> tuple[float, float]:
    """Return the statistic of the samples, and the share of permutations that reach it.

    Equal values count, with a tolerance for rounding. While no permutation reaches it, more are drawn, up to
    `max_permutations`.
    """
    column = np.repeat([0.0, 1.0], [n, m]).astype(np.float32)
    block = max(1, min(PERMUTATIONS, _BLOCK // (n + m)))
    value, drawn, reached = 0.0, 0, 0
    while drawn < PERMUTATIONS or (not reached and drawn < max_permutations):
        shuffled = rng.permuted(np.tile(column, (block, 1)), axis=1).T
        # Compute the unshuffled samples in the same product as the others, so that rounding is equal.
        values = statistic(np.column_stack([column, shuffled]))
        value = float(values[0])
        reached += int(np.count_nonzero(values[1:] >= value - 1e-7 - 1e-6 * abs(value)))
        drawn += block
    return value, (reached + 1) / (drawn + 1)
