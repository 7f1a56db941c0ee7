"""Combine the scores of masked images into saliency maps."""

import numpy as np
from numpy.typing import NDArray

from tasks.saliency.masks import Masks

__all__ = ("WeightedMasks", "normalize")


class WeightedMasks:
    """The weighted mean score for every pixel and every target, over samples that keep the pixel.

    RISE (Petsiuk et al. 2018, equation 6) divides the sum of scores times masks by the number of samples and the
    expected value of the masks. This class divides by the sum of the drawn masks for each pixel, which has the same
    limit and less noise. For occlusion the weights are the hidden parts.

    Args:
        targets: number of targets.
        rows: rows of a mask.
        columns: columns of a mask.
    """

    def __init__(self, targets: int, rows: int, columns: int) -> None:
        self._weighted_scores = np.zeros((targets, rows * columns), np.float64)
        self._weights = np.zeros(rows * columns, np.float64)
        self._scores = np.zeros(targets, np.float64)
        self._shape = (targets, rows, columns)
        self.samples = 0

    def add(self, masks: Masks, scores: NDArray[np.float32]) -> None:
        """Add samples.

        Args:
            masks: (n, rows, columns), the weight of each sample for each pixel.
            scores: (n, targets), the scores of each sample.
        """
        flat = masks.reshape(len(masks), -1)
        self._weighted_scores += scores.T @ flat
        self._weights += flat.sum(axis=0)
        self._scores += scores.sum(axis=0)
        self.samples += len(masks)

    def mean(self) -> NDArray[np.float32]:
        """Return (targets, rows, columns): the weighted mean scores; the plain mean where all weights are 0."""
        overall = self._scores[:, np.newaxis] / max(self.samples, 1)
        covered = self._weights > 1e-6
        mean = np.where(covered, self._weighted_scores / np.where(covered, self._weights, 1), overall)
        return mean.reshape(self._shape).astype(np.float32)


def normalize(saliency: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale a map to 0..1; all zero if its range is within rounding errors."""
    low, high = float(saliency.min()), float(saliency.max())
    if not high - low > 1e-6:
        return np.zeros_like(saliency)
    return (saliency - np.float32(low)) / np.float32(high - low)
