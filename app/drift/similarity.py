"""How much an image is like those of a baseline."""

import math

import numpy as np
from numpy.typing import NDArray

from app.drift.permutation import squared_distances
from app.drift.space import Space

__all__ = ("Neighbourhood", "distances_alike", "tail_test")

_NEIGHBOURS = 5
_MOST_ROWS = 2000
_TAIL = 0.05
_SEED = 0


class Neighbourhood:
    """The images of a baseline, to which others are near or far.

    An image's distance is the mean Euclidean distance to its five nearest. Euclidean, because directions say little of
    such numbers: by the cosine a blurred image may look the more alike.

    Args:
        numbers: (n, f), six rows at least; at most `_MOST_ROWS` of them are kept.
        embeddings: (n, d); d may be 0.

    Attributes:
        distances: (n,) of the images that are kept, each to the others.
    """

    def __init__(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> None:
        self._space = Space(numbers, embeddings)
        rows = self._space.joined(numbers, embeddings)
        if len(rows) > _MOST_ROWS:
            rows = rows[np.sort(np.random.default_rng(_SEED).choice(len(rows), _MOST_ROWS, replace=False))]
        self._rows = rows
        squared = squared_distances(rows, rows)
        np.fill_diagonal(squared, np.inf)
        self.distances = _nearest(squared)
        self._median = max(float(np.median(self.distances)), 1e-12)

    def distances_of(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n,) of other images."""
        return _nearest(squared_distances(self._space.joined(numbers, embeddings), self._rows))

    def similarity(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """0..1 for distances: 1/e at the median of the baseline's own, more for the more alike."""
        return np.exp(-distances / self._median)


def distances_alike(
    space: Space,
    baseline: tuple[NDArray[np.float64], NDArray[np.float32]],
    production: tuple[NDArray[np.float64], NDArray[np.float32]],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distances to the baseline's images that are the same by chance in both samples where nothing has changed.

    In its own space a baseline's images look nearer, or farther, than others do, since it was fitted to them. So the
    space is that of both samples, and an image of production passes over one of the baseline, as those pass over
    themselves.

    Args:
        space: made of both samples.
        baseline: numbers (n, f) and embeddings (n, d), of which `_MOST_ROWS` at random are used.
        production: numbers (m, f) and embeddings (m, d).
        rng: draws the rows.

    Returns:
        (at most n,) of the baseline and (m,) of production.
    """
    rows, others = space.joined(*baseline), space.joined(*production)
    if len(rows) > _MOST_ROWS:
        rows = rows[np.sort(rng.choice(len(rows), _MOST_ROWS, replace=False))]
    own = squared_distances(rows, rows)
    np.fill_diagonal(own, np.inf)
    theirs = squared_distances(others, rows)
    theirs[np.arange(len(others)), rng.integers(0, len(rows), len(others))] = np.inf
    return _nearest(own), _nearest(theirs)


def tail_test(baseline: NDArray[np.float64], production: NDArray[np.float64]) -> tuple[float, float]:
    """Whether more than its share of the largest values are of production.

    Of both samples together the largest twentieth is taken; how many of these are of production is hypergeometric. A
    few strange images among many, which move no mean, stand out here. Of equal values, the baseline's come first.

    Returns:
        The share of production in that tail, and its p-value (one-sided).
    """
    n, m = len(baseline), len(production)
    size = max(1, math.ceil(_TAIL * (n + m)))
    largest = np.argsort(-np.concatenate([baseline, production]), kind="stable")[:size]
    found = int(np.count_nonzero(largest >= n))
    chances = [_log_hypergeometric(k, n, m, size) for k in range(found, min(size, m) + 1)]
    return found / size, min(1.0, float(np.exp(np.logaddexp.reduce(chances))))


def _log_hypergeometric(k: int, n: int, m: int, size: int) -> float:
    """The logarithm of the chance that k of `size` drawn from n + m are of the m."""
    if size - k > n:
        return -math.inf
    return _log_choose(m, k) + _log_choose(n, size - k) - _log_choose(n + m, size)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _nearest(squared: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n,) mean of the five smallest distances of each row."""
    few = min(_NEIGHBOURS, squared.shape[1])
    return np.sqrt(np.partition(squared, few - 1, axis=1)[:, :few].astype(np.float64)).mean(axis=1)
