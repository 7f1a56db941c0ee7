"""Who is near, and whose images are far out."""

import importlib
from typing import Any

import numpy as np
import pytest

from app.drift.similarity import Neighbourhood, distances_alike, tail_test
from app.drift.space import Space

STATS: Any = importlib.import_module("scipy.stats")


def rows(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Numbers and embeddings."""
    rng = np.random.default_rng(seed)
    return rng.normal(5, 2, (count, 4)), rng.normal(size=(count, 40)).astype(np.float32)


def test_the_baselines_own_median_is_worth_one_over_e() -> None:
    near = Neighbourhood(*rows(200))
    assert np.median(near.similarity(near.distances)) == pytest.approx(1 / np.e, rel=0.01)


def test_the_far_are_less_alike() -> None:
    near = Neighbourhood(*rows(200))
    numbers, embeddings = rows(50, seed=1)
    alike = near.similarity(near.distances_of(numbers, embeddings))
    other = near.similarity(near.distances_of(numbers + 20, embeddings))
    assert alike.min() > other.max()


def test_a_large_baseline_is_thinned_out_and_one_without_embeddings_will_do() -> None:
    numbers, embeddings = rows(2500)
    near = Neighbourhood(numbers, embeddings[:, :0])
    assert len(near.distances) == 2000
    assert np.isfinite(near.distances_of(numbers[:5], embeddings[:5, :0])).all()


def test_a_tail_is_hypergeometric() -> None:
    first, second = np.arange(60, dtype=float), np.concatenate([np.arange(36, dtype=float), np.full(4, 100.0)])
    share, p = tail_test(first, second)
    assert share == pytest.approx(4 / 5)
    assert p == pytest.approx(float(STATS.hypergeom.sf(3, 100, 40, 5)))


def test_equal_values_raise_no_alarm() -> None:
    assert tail_test(np.zeros(100), np.zeros(100)) == (0, 1)


def test_distances_of_what_has_not_changed_are_alike_in_both_samples() -> None:
    """In the baseline's own space its images would nearly always be the farther ones."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(40, 200))

    def drawn(count: int) -> tuple[Any, Any]:
        hidden = rng.normal(size=(count, 40))
        return hidden[:, :4], (hidden @ mix).astype(np.float32)

    tails: list[float] = []
    for _ in range(100):
        first, second = drawn(100), drawn(100)
        space = Space(*(np.concatenate(each) for each in zip(first, second, strict=True)))
        own, others = distances_alike(space, first, second, rng)
        tails.append(float(np.mean(others > np.median(own))))
    assert np.mean(tails) == pytest.approx(0.5, abs=0.03)
