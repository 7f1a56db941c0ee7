"""Statistical tests of two samples, and distances of images: similarity to the baseline, and clusters."""

import importlib
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
from app.plugins.drift.hypothesis_tests import (
    chi_square,
    holm,
    kolmogorov_smirnov,
    maximum_mean_discrepancy,
    tail_excess,
    tail_test,
)

STATS: Any = importlib.import_module("scipy.stats")


def test_mmd_detects_changed_correlation() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(200, 2))
    same = rng.normal(size=(200, 2))
    correlated = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 200)
    assert maximum_mean_discrepancy(first, same, rng) > 0.05
    assert maximum_mean_discrepancy(first, correlated, rng) == pytest.approx(1 / 1000)


def test_chi_square_detects_changed_labels_and_counts_images_not_findings() -> None:
    """Give each image twenty objects of one label: Pearson's own test would alarm most of the time."""
    rng = np.random.default_rng(0)

    def draw(count: int, *shares: float) -> Any:
        return 20 * rng.multinomial(1, shares, count)

    assert chi_square(draw(200, 0.5, 0.5, 0), draw(200, 0.3, 0.5, 0.2), rng) < 0.005
    p_values = [chi_square(draw(60, 0.5, 0.5), draw(60, 0.5, 0.5), rng, 199) for _ in range(60)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.09


def test_chi_square_without_findings_is_no_drift() -> None:
    for counts in (np.zeros((40, 3), np.int64), np.zeros((40, 0), np.int64)):
        assert chi_square(counts, counts, np.random.default_rng(0)) == 1


def test_tails_name_the_column_with_outliers() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(500, 6))
    assert tail_excess(columns, 300, rng)[1] > 0.05
    columns[480:, 4] -= 4
    column, p = tail_excess(columns, 300, rng)
    assert column == 4
    assert p < 0.005


def test_tails_false_alarm_rate_stays_below_the_level() -> None:
    rng = np.random.default_rng(0)
    p_values = [tail_excess(rng.standard_t(2, size=(120, 4)), 70, rng, 199)[1] for _ in range(60)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.09
    # Counts are small, and ties count against an alarm.
    assert 0.5 < np.mean(p_values) < 0.75


def test_equal_constants_are_no_drift_in_any_test() -> None:
    rng, ones = np.random.default_rng(0), np.ones(80)
    assert kolmogorov_smirnov(ones[:50], ones[:40]) == (0, 1)
    assert kolmogorov_smirnov(ones[:50], 2 * ones[:40])[1] < 1e-9
    assert tail_test(ones, ones) == pytest.approx(1)
    assert maximum_mean_discrepancy(np.ones((40, 3)), np.ones((40, 3)), rng) == 1
    assert tail_excess(np.ones((80, 3)), 40, rng) == (0, 1.0)
    assert tail_excess((np.arange(80) % 2)[:, None].astype(float), 40, rng)[1] == 1


def test_tail_p_value_is_hypergeometric() -> None:
    first, second = np.arange(60, dtype=float), np.concatenate([np.arange(36, dtype=float), np.full(4, 100.0)])
    assert tail_test(first, second) == pytest.approx(float(STATS.hypergeom.sf(3, 100, 40, 5)))


def test_holm_matches_hand_computed_values() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([]) == []


def rows(count: int, seed: int = 0) -> tuple[Any, Any]:
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


def test_outliers_are_found_within_their_cluster() -> None:
    """Use a dark and a bright site; of the new images of the bright one, a fifth are half as bright."""
    rng = np.random.default_rng(0)
    assigned = np.arange(600) % 2
    light = rng.normal(size=600) + 8 * assigned
    light[300:360] -= 4 * assigned[300:360]
    assert tail_excess(light[:, None], 300, rng)[1] > 0.05
    assert tail_excess(standardize_within_clusters(light[:, None], assigned), 300, rng)[1] < 0.005
