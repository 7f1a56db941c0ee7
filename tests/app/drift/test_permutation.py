"""Permutation tests."""

import numpy as np
import pytest

from app.drift.permutation import chi_square, maximum_mean_discrepancy, tail_excess


def test_mmd_detects_changed_correlation() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(200, 2))
    same = rng.normal(size=(200, 2))
    correlated = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 200)
    assert maximum_mean_discrepancy(first, same, rng)[1] > 0.05
    assert maximum_mean_discrepancy(first, correlated, rng)[1] == pytest.approx(1 / 1001)


def test_mmd_p_values_are_uniform_without_change() -> None:
    rng = np.random.default_rng(1)
    p_values = [
        maximum_mean_discrepancy(rng.normal(size=(40, 3)), rng.normal(size=(30, 3)), rng)[1] for _ in range(100)
    ]
    assert np.mean(np.array(p_values) <= 0.05) == pytest.approx(0.05, abs=0.035)
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.06)


def test_mmd_of_constant_rows_is_no_drift() -> None:
    rng = np.random.default_rng(0)
    assert maximum_mean_discrepancy(np.ones((40, 3)), np.ones((40, 3)), rng)[1] == 1


def test_chi_square_detects_changed_labels() -> None:
    rng = np.random.default_rng(0)
    first = rng.multinomial(1, [0.5, 0.5, 0.0], 200)
    second = rng.multinomial(1, [0.3, 0.5, 0.2], 200)
    assert chi_square(first, rng.multinomial(1, [0.5, 0.5, 0.0], 200), rng)[1] > 0.01
    assert chi_square(first, second, rng)[1] < 0.005


def test_chi_square_counts_images_not_findings() -> None:
    """Give each image twenty objects of one label: Pearson's own test would alarm most of the time."""
    rng = np.random.default_rng(0)
    p_values = [
        chi_square(20 * rng.multinomial(1, [0.5, 0.5], 60), 20 * rng.multinomial(1, [0.5, 0.5], 60), rng)[1]
        for _ in range(60)
    ]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.09


def test_chi_square_without_findings_is_no_drift() -> None:
    rng = np.random.default_rng(0)
    assert chi_square(np.zeros((40, 3), np.int64), np.zeros((40, 3), np.int64), rng) == (0, 1)
    assert chi_square(np.zeros((40, 0), np.int64), np.zeros((40, 0), np.int64), rng) == (0, 1)


def test_mmd_adds_permutations_when_none_is_as_extreme() -> None:
    rng = np.random.default_rng(0)
    first, far = rng.normal(size=(40, 2)), rng.normal(3, 1, (40, 2))
    assert maximum_mean_discrepancy(first, far, rng)[1] == pytest.approx(1 / 1001)
    assert maximum_mean_discrepancy(first, far, rng, 5000)[1] == pytest.approx(1 / 5001)
    assert maximum_mean_discrepancy(first, rng.normal(size=(40, 2)), rng, 10**12)[1] > 1 / 1001


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
    p_values = [tail_excess(rng.standard_t(2, size=(120, 4)), 70, rng)[1] for _ in range(60)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.09
    # Counts are small, and ties count against an alarm.
    assert 0.5 < np.mean(p_values) < 0.75


def test_constant_or_binary_columns_have_no_tails() -> None:
    rng = np.random.default_rng(0)
    assert tail_excess(np.ones((80, 3)), 40, rng) == (0, 1.0)
    assert tail_excess((np.arange(80) % 2)[:, None].astype(float), 40, rng)[1] == 1
