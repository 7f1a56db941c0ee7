"""Distances of images: a space of numbers and embeddings on comparable scales, its clusters and nearest neighbours."""

import numpy as np
from numpy.typing import NDArray

from app.plugins.drift.hypothesis_tests import import_scipy, squared_distances, subsample

MAX_COMPONENTS = 32
_ROWS_A_COMPONENT = 16
"""Minimum number of rows for each component, to avoid overfitting."""

_MAX_CLUSTERS = 6
_IMAGES_PER_CLUSTER = 50
_STARTS = 5
_NEIGHBOURS = 5
_MAX_ROWS = 2000
_SEED = 0


class FeatureSpace:
    """A feature space that is fitted to (n, f) numbers and (n, d) embeddings; d may be 0.

    Numbers, and the main components of embeddings, are divided by their deviation: a component with little variation
    in a baseline detects new images best.
    """

    def __init__(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> None:
        self._mean, self._deviation = numbers.mean(axis=0), _deviations(numbers)
        self._centre = embeddings.mean(axis=0, dtype=np.float64)
        scale = _deviations(embeddings)
        count = min(MAX_COMPONENTS, embeddings.shape[1], max(1, len(embeddings) // _ROWS_A_COMPONENT))
        centred = (embeddings - self._centre) / scale
        variances, directions = _main_components(centred, count)
        self._component_deviations = np.sqrt(variances)
        self._matrix = directions / self._component_deviations / scale[:, None]

    def numbers(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardize numbers (n, f): the fitted rows have mean 0 and deviation 1."""
        return (rows - self._mean) / self._deviation

    def embeddings(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Project embeddings to standardized components (n, components)."""
        return (rows - self._centre) @ self._matrix

    def main_components(self, rows: NDArray[np.float32], count: int) -> NDArray[np.float64]:
        """Return at most `count` first components (n, components), not divided by their deviation."""
        return self.embeddings(rows)[:, :count] * self._component_deviations[:count]

    def join(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Join numbers and embeddings with equal weight into (n, f + components)."""
        arrays = [self.numbers(numbers), self.embeddings(embeddings)]
        return np.hstack([array / max(1, array.shape[1]) ** 0.5 for array in arrays]).astype(np.float32)


class Neighbourhood:
    """The images of a baseline, at most `_MAX_ROWS`, for nearest-neighbour search.

    The distance of an image is the mean Euclidean distance to its five nearest neighbours. By cosine distance, a
    blurred image could be more similar. `distances` has the (n,) distances of these images, each to the others.
    """

    def __init__(self, numbers: NDArray[np.float64], embeddings: NDArray[np.float32]) -> None:
        self._space = FeatureSpace(numbers, embeddings)
        self._rows = rows = subsample(self._space.join(numbers, embeddings), np.random.default_rng(_SEED), _MAX_ROWS)
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
    baseline: NDArray[np.float32], production: NDArray[np.float32], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distances of both samples to the baseline. Without drift, both have the same distribution.

    The (n, d) and (m, d) rows are of a space fitted to both: one fitted to the baseline alone is biased for its images.
    Each image of production skips one random image of the baseline, as images of the baseline skip themselves.
    """
    baseline = subsample(baseline, rng, _MAX_ROWS)
    squared = squared_distances(baseline, baseline)
    np.fill_diagonal(squared, np.inf)
    production_squared = squared_distances(production, baseline)
    production_squared[np.arange(len(production)), rng.integers(0, len(baseline), len(production))] = np.inf
    return _mean_nearest(squared), _mean_nearest(production_squared)


def cluster_images(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the (n,) cluster of each image, such as one for each camera, by k-means of (n, components) rows.

    Cluster both samples together, so that tests within clusters stay valid. Few images are one cluster.
    """
    count = min(_MAX_CLUSTERS, len(rows) // _IMAGES_PER_CLUSTER)
    if count < 2 or not rows.shape[1]:
        return np.zeros(len(rows), np.intp)
    clustering = import_scipy("cluster.vq")
    centres = clustering.kmeans(rows, count, iter=_STARTS, rng=_SEED)[0]
    return clustering.vq(rows, centres)[0]


def standardize_within_clusters(numbers: NDArray[np.float64], clusters: NDArray[np.intp]) -> NDArray[np.float64]:
    """Standardize each (n, d) number by the mean and deviation of its cluster."""
    standardized = np.zeros_like(numbers)
    for cluster in np.unique(clusters):
        members = numbers[clusters == cluster]
        standardized[clusters == cluster] = (members - members.mean(axis=0)) / _deviations(members)
    return standardized


def _main_components(rows: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the variances of at most `count` main components of centred (n, d) rows, and their (d, count) directions.

    The largest is first. With fewer rows than columns, the products of rows have the same eigenvalues as the products
    of columns, and take a fraction of the time.
    """
    few = len(rows) < rows.shape[1]
    values, vectors = np.linalg.eigh((rows @ rows.T if few else rows.T @ rows) / len(rows))
    strongest = np.argsort(-values)[:count]
    selected = strongest[values[strongest] > 1e-9]
    variances, vectors = values[selected], vectors[:, selected]
    return variances, rows.T @ vectors / np.sqrt(len(rows) * variances) if few else vectors


def _deviations(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the (d,) standard deviations of columns, and 1 for constant columns."""
    spread = rows.std(axis=0, dtype=np.float64)
    return np.where(spread > 1e-9 * np.maximum(1, np.abs(rows.mean(axis=0))), spread, 1.0)


def _mean_nearest(squared: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the (n,) means of the five smallest distances of each row."""
    neighbours = min(_NEIGHBOURS, squared.shape[1])
    return np.sqrt(np.partition(squared, neighbours - 1, axis=1)[:, :neighbours].astype(np.float64)).mean(axis=1)
