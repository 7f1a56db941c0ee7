"""Intervals of 95 % by bootstrap: percentiles of figures of images that are drawn with replacement."""

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 2000
_SEED = 0
_PERCENTILES = (2.5, 97.5)


class Estimate(msgspec.Struct, frozen=True):
    """A number, and its 95 % interval."""

    value: float
    low: float
    high: float


def draw_sums(values: Floats) -> Floats:
    """Return (DRAWS, K) sums of the (N, K) values of N drawn images. Every call with N images draws the same ones."""
    rng, count = np.random.default_rng(_SEED), len(values)
    return np.array([np.bincount(rng.integers(count, size=count), minlength=count) @ values for _ in range(DRAWS)])


def estimate(value: float, draws: Floats) -> Estimate:
    """Return a value with the percentiles of its draws."""
    low, high = np.percentile(draws, _PERCENTILES).tolist()
    return Estimate(value, low, high)
