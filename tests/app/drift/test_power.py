"""Drift is found where there is some, and not where there is none."""

import importlib
from typing import Any

import numpy as np
import pytest

from app.drift.comparison import compared

POWER: Any = importlib.import_module("benchmarks.drift_power")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world() -> Any:
    """600 images, measured once."""
    return POWER.World(600, 1)


def alarms(world: Any, change: Any, pairs: int) -> int:
    """Of so many pairs."""
    rng = np.random.default_rng(0)
    return sum(
        compared(*world.pair(change, (200, 200), rng), slices=["camera"]).drifted for _ in range(pairs)
    )  # fmt: skip


def test_nothing_is_no_drift(world: Any) -> None:
    assert alarms(world, POWER.NOTHING, 25) <= 1


SURE = [each for each in POWER.CHANGES if each.wanted == 0.95]


@pytest.mark.parametrize("change", SURE, ids=[each.name for each in SURE])
def test_a_change_is_found(world: Any, change: Any) -> None:
    assert alarms(world, change, 2) == 2
