"""The tests that shuffle images."""

import numpy as np
import pytest

from app.drift.permutation import chi_square, maximum_mean_discrepancy


def test_rows_that_only_together_differ_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(200, 2))
    same = rng.normal(size=(200, 2))
    turned = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 200)
    assert maximum_mean_discrepancy(first, same, rng)[1] > 0.05
    assert maximum_mean_discrepancy(first, turned, rng)[1] == pytest.approx(1 / 1001)


def test_its_p_values_are_even_where_nothing_has_changed() -> None:
    rng = np.random.default_rng(1)
    found = [
        maximum_mean_discrepancy(rng.normal(size=(40, 3)), rng.normal(size=(30, 3)), rng, 99)[1] for _ in range(300)
    ]
    assert np.mean(np.array(found) <= 0.05) == pytest.approx(0.05, abs=0.035)
    assert np.mean(found) == pytest.approx(0.5, abs=0.06)


def test_rows_without_columns_or_that_are_all_the_same_are_no_drift() -> None:
    rng = np.random.default_rng(0)
    assert maximum_mean_discrepancy(np.ones((40, 3)), np.ones((40, 3)), rng, 99)[1] == 1


def test_labels_that_change_are_found() -> None:
    rng = np.random.default_rng(0)
    first = rng.multinomial(1, [0.5, 0.5, 0.0], 200)
    second = rng.multinomial(1, [0.3, 0.5, 0.2], 200)
    assert chi_square(first, rng.multinomial(1, [0.5, 0.5, 0.0], 200), rng)[1] > 0.01
    assert chi_square(first, second, rng)[1] < 0.005


def test_findings_of_one_image_are_not_taken_for_many() -> None:
    """Every image has twenty objects of its one label: Pearson's test by itself would alarm most of the time."""
    rng = np.random.default_rng(0)
    found = [
        chi_square(20 * rng.multinomial(1, [0.5, 0.5], 60), 20 * rng.multinomial(1, [0.5, 0.5], 60), rng, 99)[1]
        for _ in range(200)
    ]
    assert np.mean(np.array(found) <= 0.05) <= 0.09


def test_nothing_found_anywhere_is_no_drift() -> None:
    rng = np.random.default_rng(0)
    assert chi_square(np.zeros((40, 3), np.int64), np.zeros((40, 3), np.int64), rng) == (0, 1)
    assert chi_square(np.zeros((40, 0), np.int64), np.zeros((40, 0), np.int64), rng) == (0, 1)
