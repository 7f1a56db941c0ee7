"""Similarity to the baseline, and the test of distant images."""

import importlib
from typing import Any

import numpy as np
import pytest

from app.drift.feature_space import FeatureSpace
from app.drift.similarity import Neighbourhood, comparable_distances, tail_test

STATS: Any = importlib.import_module("scipy.stats")


def rows(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Return random numbers and embeddings."""
    rng = np.random.default_rng(seed)
    return rng.normal(5, 2, (count, 4)), rng.normal(size=(count, 40)).astype(np.float32)


def test_median_similarity_of_the_baseline_is_one_over_e() -> None:
    neighbourhood = Neighbourhood(*rows(200))
    assert np.median(neighbourhood.similarity(neighbourhood.distances)) == pytest.approx(1 / np.e, rel=0.01)


def test_distant_images_are_less_similar() -> None:
    neighbourhood = Neighbourhood(*rows(200))
    numbers, embeddings = rows(50, seed=1)
    close_similarity = neighbourhood.similarity(neighbourhood.distances_of(numbers, embeddings))
    far_similarity = neighbourhood.similarity(neighbourhood.distances_of(numbers + 20, embeddings))
    assert close_similarity.min() > far_similarity.max()


def test_large_baseline_without_embeddings_is_subsampled() -> None:
    numbers, embeddings = rows(2500)
    neighbourhood = Neighbourhood(numbers, embeddings[:, :0])
    assert len(neighbourhood.distances) == 2000
    assert np.isfinite(neighbourhood.distances_of(numbers[:5], embeddings[:5, :0])).all()


def test_tail_p_value_is_hypergeometric() -> None:
    first, second = np.arange(60, dtype=float), np.concatenate([np.arange(36, dtype=float), np.full(4, 100.0)])
    share, p = tail_test(first, second)
    assert share == pytest.approx(4 / 5)
    assert p == pytest.approx(float(STATS.hypergeom.sf(3, 100, 40, 5)))


def test_equal_values_have_no_tail() -> None:
    assert tail_test(np.zeros(100), np.zeros(100)) == (0, 1)


def test_distances_without_change_are_equal_in_both_samples() -> None:
    """Measure in a common space: in the baseline's own space its images are nearly always farther."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(40, 200))

    def draw(count: int) -> tuple[Any, Any]:
        hidden = rng.normal(size=(count, 40))
        return hidden[:, :4], (hidden @ mix).astype(np.float32)

    tails: list[float] = []
    for _ in range(100):
        first, second = draw(100), draw(100)
        space = FeatureSpace(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))
        first_distances, second_distances = comparable_distances(space, first, second, rng)
        tails.append(float(np.mean(second_distances > np.median(first_distances))))
    assert np.mean(tails) == pytest.approx(0.5, abs=0.03)
