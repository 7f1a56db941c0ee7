"""Cluster images that look alike, for example of one camera or place, without metadata.

Both samples are clustered together, whichever sample an image belongs to. So tests within clusters stay valid.
"""

import numpy as np
from numpy.typing import NDArray

from app.drift.feature_space import deviations
from app.drift.permutation import squared_distances

__all__ = ("cluster_images", "standardize_within_clusters")

_MAX_CLUSTERS = 6
_IMAGES_PER_CLUSTER = 50
_STEPS = 15
_SEED = 0


def cluster_images(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the cluster of each image, of shape (n,), by k-means of rows (n, components).

    Wider components have more weight. Without components, or with few images, there is one cluster.
    """
    count = min(_MAX_CLUSTERS, len(rows) // _IMAGES_PER_CLUSTER)
    if count < 2 or not rows.shape[1]:
        return np.zeros(len(rows), np.intp)
    points = rows.astype(np.float32)
    centres = _initial_centres(points, count)
    nearest = np.zeros(len(points), np.intp)
    for _ in range(_STEPS):
        nearest = squared_distances(points, centres).argmin(axis=1)
        centres = np.stack([
            points[nearest == index].mean(axis=0) if (nearest == index).any() else centre
            for index, centre in enumerate(centres)
        ])  # fmt: skip
    return nearest


def standardize_within_clusters(numbers: NDArray[np.float64], clusters: NDArray[np.intp]) -> NDArray[np.float64]:
    """Standardize each number by the mean and deviation of its cluster; returns (n, d)."""
    standardized = np.zeros_like(numbers)
    for cluster in np.unique(clusters):
        members = numbers[clusters == cluster]
        standardized[clusters == cluster] = (members - members.mean(axis=0)) / deviations(members)
    return standardized


def _initial_centres(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Choose distant rows as in k-means++; returns (count, d)."""
    rng = np.random.default_rng(_SEED)
    chosen = [int(rng.integers(len(rows)))]
    for _ in range(count - 1):
        weights = squared_distances(rows, rows[chosen]).min(axis=1).astype(np.float64)
        chosen.append(int(rng.choice(len(rows), p=weights / weights.sum())) if weights.any() else chosen[0])
    return rows[chosen]
