"""Distances of images: similarity to the baseline, and clusters."""

from typing import Any

import numpy as np
import pytest

from app.plugins.drift.feature_space import (
    FeatureSpace,
    Neighbourhood,
    cluster_images,
    comparable_distances,
    standardize_within_clusters,
)
from app.plugins.drift.hypothesis_tests import tail_excess


def rows(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Return random numbers and embeddings."""
    rng = np.random.default_rng(seed)
    return rng.normal(5, 2, (count, 4)), rng.normal(size=(count, 40)).astype(np.float32)


def test_similarity_is_one_over_e_at_the_median_and_less_for_distant_images() -> None:
    neighbourhood = Neighbourhood(*rows(200))
    assert np.median(neighbourhood.similarity(neighbourhood.distances)) == pytest.approx(1 / np.e, rel=0.01)
    numbers, embeddings = rows(50, seed=1)
    close_similarity = neighbourhood.similarity(neighbourhood.distances_of(numbers, embeddings))
    far_similarity = neighbourhood.similarity(neighbourhood.distances_of(numbers + 20, embeddings))
    assert close_similarity.min() > far_similarity.max()


def test_large_baseline_without_embeddings_is_subsampled() -> None:
    numbers, embeddings = rows(2500)
    neighbourhood = Neighbourhood(numbers, embeddings[:, :0])
    assert len(neighbourhood.distances) == 2000
    assert np.isfinite(neighbourhood.distances_of(numbers[:5], embeddings[:5, :0])).all()


def test_distances_without_change_are_equal_in_both_samples() -> None:
    """Measure in a common space: in the baseline's own space its images are nearly always farther."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(40, 80))

    def draw(count: int) -> tuple[Any, Any]:
        hidden = rng.normal(size=(count, 40))
        return hidden[:, :4], (hidden @ mix).astype(np.float32)

    tails: list[float] = []
    for _ in range(25):
        first, second = draw(100), draw(100)
        space = FeatureSpace(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))
        first_distances, second_distances = comparable_distances(space.join(*first), space.join(*second), rng)
        tails.append(float(np.mean(second_distances > np.median(first_distances))))
    assert np.mean(tails) == pytest.approx(0.5, abs=0.03)


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
    values = rng.normal(size=(300, 2)) * (1 + assigned[:, None]) + 10 * assigned[:, None]
    standardized = standardize_within_clusters(values, assigned)
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
