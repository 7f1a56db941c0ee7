"""The tests that shuffle images."""

import numpy as np
import pytest

from app.drift.permutation import chi_square, maximum_mean_discrepancy, tails


def test_rows_that_only_together_differ_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(200, 2))
    same = rng.normal(size=(200, 2))
    turned = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 200)
    assert maximum_mean_discrepancy(first, same, rng)[1] > 0.05
    assert maximum_mean_discrepancy(first, turned, rng)[1] == pytest.approx(1 / 1001)


def test_its_p_values_are_even_where_nothing_has_changed() -> None:
    rng = np.random.default_rng(1)
    found = [maximum_mean_discrepancy(rng.normal(size=(40, 3)), rng.normal(size=(30, 3)), rng)[1] for _ in range(100)]
    assert np.mean(np.array(found) <= 0.05) == pytest.approx(0.05, abs=0.035)
    assert np.mean(found) == pytest.approx(0.5, abs=0.06)


def test_rows_without_columns_or_that_are_all_the_same_are_no_drift() -> None:
    rng = np.random.default_rng(0)
    assert maximum_mean_discrepancy(np.ones((40, 3)), np.ones((40, 3)), rng)[1] == 1


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
        chi_square(20 * rng.multinomial(1, [0.5, 0.5], 60), 20 * rng.multinomial(1, [0.5, 0.5], 60), rng)[1]
        for _ in range(60)
    ]
    assert np.mean(np.array(found) <= 0.05) <= 0.09


def test_nothing_found_anywhere_is_no_drift() -> None:
    rng = np.random.default_rng(0)
    assert chi_square(np.zeros((40, 3), np.int64), np.zeros((40, 3), np.int64), rng) == (0, 1)
    assert chi_square(np.zeros((40, 0), np.int64), np.zeros((40, 0), np.int64), rng) == (0, 1)


def test_what_none_of_the_first_shuffles_reaches_is_shuffled_more() -> None:
    rng = np.random.default_rng(0)
    first, far = rng.normal(size=(40, 2)), rng.normal(3, 1, (40, 2))
    assert maximum_mean_discrepancy(first, far, rng)[1] == pytest.approx(1 / 1001)
    assert maximum_mean_discrepancy(first, far, rng, 5000)[1] == pytest.approx(1 / 5001)
    assert maximum_mean_discrepancy(first, rng.normal(size=(40, 2)), rng, 10**12)[1] > 1 / 1001


def test_a_few_strange_images_are_found_in_the_column_that_shows_them() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(500, 6))
    assert tails(columns, 300, rng)[1] > 0.05
    columns[480:, 4] -= 4
    column, p = tails(columns, 300, rng)
    assert column == 4
    assert p < 0.005


def test_tails_alarm_as_rarely_as_the_level_says() -> None:
    rng = np.random.default_rng(0)
    found = [tails(rng.standard_t(2, size=(120, 4)), 70, rng)[1] for _ in range(60)]
    assert np.mean(np.array(found) <= 0.05) <= 0.09
    # Counts are few, and equal ones count against an alarm.
    assert 0.5 < np.mean(found) < 0.75


def test_columns_that_never_or_rarely_vary_have_no_tails() -> None:
    rng = np.random.default_rng(0)
    assert tails(np.ones((80, 3)), 40, rng) == (0, 1.0)
    assert tails((np.arange(80) % 2)[:, None].astype(float), 40, rng)[1] == 1
