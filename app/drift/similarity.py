"""Measure the similarity of images to a baseline."""

import math

import numpy as np
from numpy.typing import NDArray

from app.drift.feature_space import FeatureSpace
from app.drift.permutation import squared_distances

__all__ = ("Neighbourhood", "comparable_distances", "tail_test")

_NEIGHBOURS = 5
_MAX_ROWS = 2000
_TAIL = 0.05
_SEED = 0


class Neighbourhood:
    """The images of a baseline for nearest-neighbour search.

    The distance of an image is the mean Euclidean distance to its five nearest neighbours. Cosine distance would not
    work for such numbers: a blurred image could get more similar.

    Args:
        numbers: (n, f), at least six rows; at most `_MAX_ROWS` of them are kept.
        embeddings: (n, d); d may be 0.

    Attributes:
        distances: (n,) distances of the kept images, each to the others.
    """

    def __init__(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> None:
        self._space = FeatureSpace(numbers, embeddings)
        rows = self._space.join(numbers, embeddings)
        if len(rows) > _MAX_ROWS:
            rows = rows[np.sort(np.random.default_rng(_SEED).choice(len(rows), _MAX_ROWS, replace=False))]
        self._rows = rows
        squared = squared_distances(rows, rows)
        np.fill_diagonal(squared, np.inf)
        self.distances = _mean_nearest(squared)
        self._median = max(float(np.median(self.distances)), 1e-12)

    def distances_of(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the (n,) distances of other images."""
        return _mean_nearest(squared_distances(self._space.join(numbers, embeddings), self._rows))

    def similarity(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert distances into similarities 0..1: 1/e at the median distance of the baseline's own images."""
        return np.exp(-distances / self._median)


def comparable_distances(
    space: FeatureSpace,
    baseline: tuple[NDArray[np.float64], NDArray[np.float32]],
    production: tuple[NDArray[np.float64], NDArray[np.float32]],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return distances to the baseline that have the same distribution in both samples without drift.

    A space fitted only to the baseline gives biased distances for its own images. So it is fitted to both samples.
    Each image of production also skips one random image of the baseline, as baseline images skip themselves.

    Args:
        space: fitted to both samples.
        baseline: numbers (n, f) and embeddings (n, d); a random subset of `_MAX_ROWS` is used.
        production: numbers (m, f) and embeddings (m, d).
        rng: draws the rows.

    Returns:
        Distances of the baseline, of shape (at most n,), and of production, of shape (m,).
    """
    baseline_rows, production_rows = space.join(*baseline), space.join(*production)
    if len(baseline_rows) > _MAX_ROWS:
        baseline_rows = baseline_rows[np.sort(rng.choice(len(baseline_rows), _MAX_ROWS, replace=False))]
    baseline_squared = squared_distances(baseline_rows, baseline_rows)
    np.fill_diagonal(baseline_squared, np.inf)
    production_squared = squared_distances(production_rows, baseline_rows)
    production_squared[np.arange(len(production_rows)), rng.integers(0, len(baseline_rows), len(production_rows))] = (
        np.inf
    )
    return _mean_nearest(baseline_squared), _mean_nearest(production_squared)


def tail_test(baseline: NDArray[np.float64], production: NDArray[np.float64]) -> tuple[float, float]:
    """Test whether production is overrepresented among the largest values.

    The test counts production in the largest 5 % of both samples; this count is hypergeometric. It detects a few
    outliers that do not change the mean. Among equal values, those of the baseline come first.

    Returns:
        The share of production in that tail, and its p-value (one-sided).
    """
    n, m = len(baseline), len(production)
    size = max(1, math.ceil(_TAIL * (n + m)))
    largest = np.argsort(-np.concatenate([baseline, production]), kind="stable")[:size]
    tail_count = int(np.count_nonzero(largest >= n))
    chances = [_log_hypergeometric(k, n, m, size) for k in range(tail_count, min(size, m) + 1)]
    return tail_count / size, min(1.0, float(np.exp(np.logaddexp.reduce(chances))))


def _log_hypergeometric(k: int, n: int, m: int, size: int) -> float:
    """Return the log probability that k of `size` values drawn from n + m are among the m."""
    if size - k > n:
        return -math.inf
    return _log_choose(m, k) + _log_choose(n, size - k) - _log_choose(n + m, size)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _mean_nearest(squared: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the (n,) means of the five smallest distances of each row."""
    neighbours = min(_NEIGHBOURS, squared.shape[1])
    return np.sqrt(np.partition(squared, neighbours - 1, axis=1)[:, :neighbours].astype(np.float64)).mean(axis=1)
