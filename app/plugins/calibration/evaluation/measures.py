"""Measure how far stated probabilities are from frequencies."""

import msgspec
import numpy as np

from app.plugins.calibration.evaluation.events import Events
from app.plugins.evaluation.metrics.bootstrap import Estimate, draw_sums, estimate

BINS = 15


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


def measure(events: Events) -> Measured:
    """Measure at least one event. The intervals draw images, not events."""
    # Bins are (low, high], and the first one includes 0.
    bins = np.maximum(np.searchsorted(np.linspace(0, 1, BINS + 1), events.confidence) - 1, 0)
    numbers, images = np.unique(events.images, return_inverse=True)
    # By image: how far confidence exceeds correctness in each bin, the squared error, and the number of events.
    sums = np.zeros((len(numbers), BINS + 2))
    np.add.at(sums, (images, bins), events.confidence - events.correct)
    sums[:, BINS], sums[:, BINS + 1] = np.bincount(images, events.brier), np.bincount(images)
    drawn, total = draw_sums(sums), sums.sum(axis=0)
    eces, briers = np.abs(drawn[:, :BINS]).sum(axis=1) / drawn[:, -1], drawn[:, BINS] / drawn[:, -1]
    counts, confidence, correct = (
        np.bincount(bins, column, BINS) for column in (None, events.confidence, events.correct)
    )
    used = counts > 0
    return Measured(
        events=len(bins),
        ece=estimate(float(np.abs(total[:BINS]).sum() / len(bins)), eces),
        brier=estimate(float(events.brier.mean()), briers),
        loss=float(events.loss.mean()),
        confidence=tuple((confidence[used] / counts[used]).tolist()),
        frequency=tuple((correct[used] / counts[used]).tolist()),
    )
