"""Statistical tests of two samples, by SciPy, and those that SciPy lacks.

Permutation tests shuffle whole images, because the predictions of one image depend on each other.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.core.engine.error_text import needs_extra
from app.plugins.drift.sample import DriftError

PERMUTATIONS = 999
"""Default number of permutations. The p-value is at least 1 / (PERMUTATIONS + 1)."""

MAX_ROWS = 1000
"""Maximum number of rows of one sample in a kernel: memory and time grow with its square."""

_BANDWIDTH_ROWS = 300
_TAIL_SHARE = 0.05
_BLOCK = 2_000_000
"""Maximum number of permuted values in memory at once."""

_Float = TypeVar("_Float", np.float32, np.float64)
Numbers = NDArray[np.float64]
_Statistic = Callable[[Numbers], Numbers]
"""Returns one value for each column of (n + m, k), in which images of the second sample have 1, and others 0."""


def import_scipy(module: str = "stats") -> Any:
    """Import a module of SciPy, which servers without drift monitoring do not need, or raise `DriftError`."""
    with needs_extra("Drift detection", "drift", DriftError):
        return importlib.import_module(f"scipy.{module}")


def kolmogorov_smirnov(first: Numbers, second: Numbers) -> tuple[float, float]:
    """Return the largest distance of the two cumulative distributions, and its two-sided p-value."""
    result = import_scipy().ks_2samp(first, second, method="asymp")
    return float(result.statistic), float(result.pvalue)


def tail_test(baseline: Numbers, production: Numbers) -> float:
    """Return the one-sided p-value of production's count among the largest 5 % of both samples (hypergeometric).

    It detects a few outliers that do not change the mean. Of equal values, the baseline's come first.
    """
    n, total = len(baseline), len(baseline) + len(production)
    size = max(1, math.ceil(_TAIL_SHARE * total))
    largest = np.argsort(-np.concatenate([baseline, production]), kind="stable")[:size]
    return float(import_scipy().hypergeom.sf(np.count_nonzero(largest >= n) - 1, total, total - n, size))


def category_excess(
    categories: Sequence[NDArray[np.intp]], n: int, rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> list[float]:
    """Return the p-value of Pearson's chi-square of each key, corrected for the other keys.

    `categories` has the (n + m,) category of each image, by key; the first `n` images are of the first sample. A key is
    compared with the largest statistic of all keys in each permutation (Westfall and Young, 1993).
    """
    total, parts = len(categories[0]), [np.unique(key, return_inverse=True)[1] for key in categories]
    sizes = [int(part.max()) + 1 for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.concatenate([part + start for part, start in zip(parts, starts, strict=True)])
    columns = np.tile(np.arange(total), len(parts))
    indicator = import_scipy("sparse").csr_array((np.ones(len(rows)), (rows, columns)), (sum(sizes), total))
    counts, share = np.bincount(rows)[:, None], 1 - n / total
    freedom = np.array(sizes)[:, None] - 1

    def excess(in_second: Numbers) -> Numbers:
        cells = np.square(indicator @ in_second - counts * share) / (counts * share * (1 - share))
        return (np.add.reduceat(cells, starts) - freedom) / np.sqrt(2 * freedom)

    of_samples = np.round(excess(np.repeat([0.0, 1.0], [n, total - n])[:, None])[:, 0], 12)
    largest = _permute(lambda in_second: excess(in_second).max(axis=0), n, total - n, rng, permutations)
    reached = np.count_nonzero(largest.null_distribution >= of_samples[:, None], axis=1)
    return ((reached + 1) / (len(largest.null_distribution) + 1)).tolist()


def chi_square(
    first: NDArray[np.int64], second: NDArray[np.int64], rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> float:
    """Return the p-value of Pearson's chi-square of the label counts of two samples, (n, labels) and (m, labels)."""
    pooled = np.concatenate([first, second]).astype(np.float64)
    pooled = pooled[:, pooled.sum(axis=0) > 0]
    if not pooled.size:
        return 1.0
    totals = pooled.sum(axis=0)

    def distance(in_second: Numbers) -> Numbers:
        second_counts = pooled.T @ in_second  # (labels, k)
        share = second_counts.sum(axis=0) / totals.sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            values = (1 / totals) @ np.square(second_counts - totals[:, None] * share) / (share * (1 - share))
        return np.nan_to_num(values, nan=0.0, posinf=0.0)

    return _permutation_p(distance, len(first), len(second), rng, permutations)


def maximum_mean_discrepancy(
    first: Numbers, second: Numbers, rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> float:
    """Return the p-value of the maximum mean discrepancy of (n, d) and (m, d), of at most `MAX_ROWS` rows each.

    The kernel is Gaussian, its width the median distance of two rows (Gretton et al., JMLR 13, 2012).
    """
    first, second = subsample(first, rng, MAX_ROWS), subsample(second, rng, MAX_ROWS)
    n, m = len(first), len(second)
    pooled = np.concatenate([first, second]).astype(np.float32)
    chosen = pooled[rng.choice(len(pooled), min(len(pooled), _BANDWIDTH_ROWS), replace=False)]
    median = float(np.median(squared_distances(chosen, chosen)[np.triu_indices(len(chosen), 1)]))
    kernel = np.exp(-squared_distances(pooled, pooled) / max(median, 1e-12)).astype(np.float64)

    def discrepancy(in_second: Numbers) -> Numbers:
        weights = 1 / n - (1 / n + 1 / m) * in_second
        return np.einsum("ij,ij->j", weights, kernel @ weights)

    return _permutation_p(discrepancy, n, m, rng, permutations)


def tail_excess(
    columns: Numbers, n: int, rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> tuple[int, float]:
    """Test whether the second sample is overrepresented in the largest or smallest 5 % of some column.

    The statistic is the largest excess of all columns, in standard deviations, so redundant columns cost no power.
    `columns` is (n + m, d). Return the column with the largest excess, and the p-value.
    """
    total = len(columns)
    m, size = total - n, max(1, math.ceil(_TAIL_SHARE * total))
    signed = np.concatenate([columns, -columns], axis=1)
    # Exclude values equal to the threshold: ties have no order.
    inside = (signed > -np.partition(-signed, size, axis=0)[size]).astype(np.float64)
    sizes = inside.sum(axis=0)
    if not sizes.any():
        return 0, 1.0
    expected = sizes * m / total
    deviation = np.sqrt(np.maximum(expected * (n / total) * (total - sizes) / (total - 1), 1e-12))

    def excess(in_second: Numbers) -> Numbers:
        return (inside.T @ in_second - expected[:, None]) / deviation[:, None]

    p = _permutation_p(lambda in_second: excess(in_second).max(axis=0), n, m, rng, permutations)
    observed = excess(np.repeat([0.0, 1.0], [n, m])[:, None])[:, 0]
    return int(observed.argmax()) % columns.shape[1], p


def holm(values: Sequence[float]) -> list[float]:
    """Adjust p-values to control the probability of any false alarm (Holm, 1979)."""
    order = np.argsort(values)
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate(np.asarray(values)[order] * np.arange(len(values), 0, -1))
    return np.minimum(adjusted, 1).tolist()


def squared_distances(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the (n, m) squared Euclidean distances of rows. As a product it is much faster than SciPy's `cdist`."""
    norms = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1)[None, :]
    return np.maximum(norms - 2 * first @ second.T, 0)


def subsample(rows: NDArray[_Float], rng: np.random.Generator, max_rows: int) -> NDArray[_Float]:
    """Return a random choice of `max_rows` rows in their order, or all of fewer rows."""
    return rows if len(rows) <= max_rows else rows[np.sort(rng.choice(len(rows), max_rows, replace=False))]


def _permutation_p(statistic: _Statistic, n: int, m: int, rng: np.random.Generator, permutations: int) -> float:
    """Return the share of permutations whose statistic reaches the statistic of the samples."""
    return float(_permute(statistic, n, m, rng, permutations).pvalue)


def _permute(statistic: _Statistic, n: int, m: int, rng: np.random.Generator, permutations: int) -> Any:
    """Return SciPy's result of a permutation test of images."""

    def of_rows(_: NDArray[np.intp], second: NDArray[np.intp], axis: int) -> Numbers:
        second = np.moveaxis(second, axis, -1)
        batch = second.reshape(-1, m)
        in_second = np.zeros((len(batch), n + m))
        np.put_along_axis(in_second, batch, 1, axis=1)
        # Round, so that equal values stay equal in products of different sizes.
        return np.round(statistic(in_second.T), 12).reshape(second.shape[:-1])

    rows, batch = np.arange(n + m), max(1, _BLOCK // (n + m))
    return import_scipy().permutation_test(
        (rows[:n], rows[n:]), of_rows, n_resamples=permutations, batch=batch, vectorized=True, alternative="greater",
        rng=rng,
    )  # fmt: skip
