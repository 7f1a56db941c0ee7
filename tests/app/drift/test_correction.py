"""Corrections of p-values, and the population stability index."""

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.drift.correction import benjamini_hochberg, holm, population_stability

STATS: Any = importlib.import_module("scipy.stats")

P_VALUES = st.lists(st.floats(1e-9, 1), min_size=1, max_size=30)


@given(P_VALUES)
def test_benjamini_hochberg_equals_scipy(values: list[float]) -> None:
    assert benjamini_hochberg(values) == pytest.approx(STATS.false_discovery_control(values).tolist())


@given(P_VALUES)
def test_holm_lies_between_the_values_and_bonferroni(values: list[float]) -> None:
    for value, adjusted in zip(values, holm(values), strict=True):
        assert value <= adjusted <= min(1, value * len(values)) + 1e-12


def test_holm_matches_hand_computed_values() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == benjamini_hochberg([]) == []


def test_psi_is_small_for_equal_and_large_for_shifted_samples() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=1000)
    assert population_stability(first, rng.normal(size=1000)) < 0.1
    assert population_stability(first, rng.normal(1, size=1000)) > 0.25
    assert population_stability(np.zeros(50), np.zeros(50)) == pytest.approx(0)
