"""Measure how far stated probabilities are from frequencies."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.calibration.evaluation.events import Events
from app.plugins.calibration.fitting import Floats

BINS = 15
DRAWS = 1000
_SEED = 0
_PERCENTILES = (2.5, 97.5)


class Estimate(msgspec.Struct, frozen=True):
    """A number, and its 95 % interval."""

    value: float
    low: float
    high: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The calibration of some events.

    Attributes:
        ece: expected calibration error over `BINS` bins of equal width.
        brier: mean squared error.
        loss: mean negative log-likelihood.
        confidence: mean confidence of each bin that has events.
        frequency: share of correct events in each of these bins.
    """

    events: int
    ece: Estimate
    brier: Estimate
    loss: float
    confidence: tuple[float, ...]
    frequency: tuple[float, ...]


def measure(events: Events, draws: int = DRAWS) -> Measured:
    """Measure at least one event. The intervals are percentiles of a bootstrap that draws images, not events."""
    # Bins are (low, high], and the first one includes 0.
    bins = np.maximum(np.searchsorted(np.linspace(0, 1, BINS + 1), events.confidence) - 1, 0)
    numbers, images = np.unique(events.images, return_inverse=True)
    rng = np.random.default_rng(_SEED)
    eces, briers = np.empty(draws), np.empty(draws)
    for draw in range(draws):
        drawn = np.bincount(rng.integers(len(numbers), size=len(numbers)), minlength=len(numbers))
        weights = drawn[images].astype(np.float64)
        counts, confidence, correct = _sums(bins, events, weights)
        eces[draw] = np.abs(confidence - correct).sum() / counts.sum()
        briers[draw] = np.average(events.brier, weights=weights)
    counts, confidence, correct = _sums(bins, events, np.ones(len(bins)))
    used = counts > 0
    return Measured(
        events=len(bins),
        ece=_estimate(float(np.abs(confidence - correct).sum() / len(bins)), eces),
        brier=_estimate(float(events.brier.mean()), briers),
        loss=float(events.loss.mean()),
        confidence=tuple((confidence[used] / counts[used]).tolist()),
        frequency=tuple((correct[used] / counts[used]).tolist()),
    )


def _sums(bins: NDArray[np.intp], events: Events, weights: Floats) -> Sequence[Floats]:
    """Return for each bin the weight, the weighted confidence, and the weight of correct events."""
    columns = (weights, weights * events.confidence, weights * events.correct)
    return [np.bincount(bins, column, BINS).astype(np.float64) for column in columns]


def _estimate(value: float, draws: Floats) -> Estimate:
    low, high = np.percentile(draws, _PERCENTILES).tolist()
    return Estimate(value, low, high)
