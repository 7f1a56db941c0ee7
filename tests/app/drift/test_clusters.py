"""Clusters of images, and outliers within a cluster."""

import numpy as np

from app.drift.clusters import cluster_images, standardize_within_clusters
from app.drift.permutation import tail_excess


def test_distant_embeddings_are_separate_clusters() -> None:
    rng = np.random.default_rng(0)
    site = np.repeat([0, 1], 60)
    assigned = cluster_images(rng.normal(size=(120, 3)) + 50 * site[:, None])
    assert len(set(assigned[site == 0])) == 1
    assert len(set(assigned[site == 1])) == 1
    assert assigned[0] != assigned[-1]


def test_few_images_or_no_embeddings_are_one_cluster() -> None:
    assert not cluster_images(np.random.default_rng(0).normal(size=(99, 3))).any()
    assert not cluster_images(np.zeros((400, 0))).any()
    assert not cluster_images(np.zeros((400, 3))).any()


def test_features_are_standardized_within_each_cluster() -> None:
    rng = np.random.default_rng(0)
    assigned = rng.integers(0, 3, 300)
    standardized = standardize_within_clusters(
        rng.normal(size=(300, 2)) * (1 + assigned[:, None]) + 10 * assigned[:, None], assigned
    )
    for cluster in range(3):
        np.testing.assert_allclose(standardized[assigned == cluster].mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(standardized[assigned == cluster].std(axis=0), 1)
    assert not standardize_within_clusters(np.ones((10, 2)), np.zeros(10, np.intp)).any()


def test_outliers_are_found_within_their_cluster() -> None:
    """Use a dark and a bright site; of the new images of the bright one, a fifth are half as bright."""
    rng = np.random.default_rng(0)
    assigned = np.arange(600) % 2
    light = rng.normal(size=600) + 8 * assigned
    light[300:360] -= 4 * assigned[300:360]
    assert tail_excess(light[:, None], 300, rng)[1] > 0.05
    assert tail_excess(standardize_within_clusters(light[:, None], assigned), 300, rng)[1] < 0.005
