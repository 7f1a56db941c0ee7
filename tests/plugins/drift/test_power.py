"""Drift of real images, on the small deployment that `make bench-drift` measures."""

import numpy as np
import pytest

from app.plugins.drift.comparison import compare
from tests.benchmarks.drift_power import CHANGES, NOTHING, Change, World

RELIABLY_DETECTED = [
    change for change in CHANGES if change.wanted == 0.95 and change.share == 1.0 and change.camera is None
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world() -> World:
    """Return a few images, measured once."""
    return World(300, 1)


def is_drifted(world: World, change: Change) -> bool:
    return compare(*world.pair(change, (150, 150), np.random.default_rng(0))).drifted


def test_images_without_a_change_are_not_drifted(world: World) -> None:
    assert not is_drifted(world, NOTHING)


@pytest.mark.parametrize("change", RELIABLY_DETECTED, ids=[change.name for change in RELIABLY_DETECTED])
def test_changed_images_are_drifted(world: World, change: Change) -> None:
    assert is_drifted(world, change)
