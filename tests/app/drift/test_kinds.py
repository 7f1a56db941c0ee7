"""Clusters of images, and outliers within a cluster."""

import numpy as np

from app.drift.kinds import kinds, within_kinds
from app.drift.permutation import tails


def test_distant_embeddings_are_separate_clusters() -> None:
    rng = np.random.default_rng(0)
    site = np.repeat([0, 1], 60)
    assigned = kinds(rng.normal(size=(120, 3)) + 50 * site[:, None])
    assert len(set(assigned[site == 0])) == 1
    assert len(set(assigned[site == 1])) == 1
    assert assigned[0] != assigned[-1]


def test_few_images_or_no_embeddings_are_one_cluster() -> None:
    assert not kinds(np.random.default_rng(0).normal(size=(99, 3))).any()
    assert not kinds(np.zeros((400, 0))).any()
    assert not kinds(np.zeros((400, 3))).any()


def test_features_are_standardized_within_each_cluster() -> None:
    rng = np.random.default_rng(0)
    assigned = rng.integers(0, 3, 300)
    standardized = within_kinds(rng.normal(size=(300, 2)) * (1 + assigned[:, None]) + 10 * assigned[:, None], assigned)
    for cluster in range(3):
        np.testing.assert_allclose(standardized[assigned == cluster].mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(standardized[assigned == cluster].std(axis=0), 1)
    assert not within_kinds(np.ones((10, 2)), np.zeros(10, np.intp)).any()


def test_outliers_are_found_within_their_cluster() -> None:
    """Use a dark and a bright site; of the new images of the bright one, a fifth are half as bright."""
    rng = np.random.default_rng(0)
    assigned = np.arange(600) % 2
    light = rng.normal(size=600) + 8 * assigned
    light[300:360] -= 4 * assigned[300:360]
    assert tails(light[:, None], 300, rng)[1] > 0.05
    assert tails(within_kinds(light[:, None], assigned), 300, rng)[1] < 0.005
