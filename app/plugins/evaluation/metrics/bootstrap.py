"""Intervals of 95 % by bootstrap: percentiles of figures of images that are drawn with replacement."""

import numpy as np
from numpy.typing import NDArray

from app.plugins.evaluation.metrics.intervals import Estimate

Floats = NDArray[np.float64]

DRAWS = 2000
_SEED = 0
_PERCENTILES = (2.5, 97.5)


def draw_sums(values: Floats) -> Floats:
    """Return (DRAWS, K) sums of the (N, K) values of N drawn images. Every call with N images draws the same ones."""
    rng, count = np.random.default_rng(_SEED), len(values)
    return np.array([np.bincount(rng.integers(count, size=count), minlength=count) @ values for _ in range(DRAWS)])


def estimate(value: float, draws: Floats) -> Estimate:
    """Return a value with the percentiles of its draws."""
    low, high = np.percentile(draws, _PERCENTILES).tolist()
    return Estimate(value, low, high)
