"""From how well a finding was found again behind each mask to where it lies."""

import numpy as np
from numpy.typing import NDArray

from tasks.explanation.masks import Masks

__all__ = ("WeightedMasks", "unit_range")


class WeightedMasks:
    """The mean score of the samples in which a pixel was kept, for every pixel and every finding.

    RISE (Petsiuk et al. 2018, equation 6) divides the sum of scores times masks by the number of samples and the mean
    of the masks. Here that mean is the one of the masks that were drawn, pixel by pixel, and not the one expected of
    them: the same in the long run, and less noisy until then. For occlusion the same is done with what the masks hide.

    Args:
        findings: how many.
        rows: of a mask.
        columns: of a mask.
    """

    def __init__(self, findings: int, rows: int, columns: int) -> None:
        self._weighted = np.zeros((findings, rows * columns), np.float64)
        self._weights = np.zeros(rows * columns, np.float64)
        self._scores = np.zeros(findings, np.float64)
        self._shape = (findings, rows, columns)
        self.samples = 0

    def add(self, masks: Masks, scores: NDArray[np.float32]) -> None:
        """Count samples in.

        Args:
            masks: (n, rows, columns), how much of each pixel a sample says something about.
            scores: (n, findings), what it says.
        """
        flat = masks.reshape(len(masks), -1)
        self._weighted += scores.T @ flat
        self._weights += flat.sum(axis=0)
        self._scores += scores.sum(axis=0)
        self.samples += len(masks)

    def mean(self) -> NDArray[np.float32]:
        """(findings, rows, columns): the weighted mean of the scores; the plain mean where no sample says anything."""
        overall = self._scores[:, np.newaxis] / max(self.samples, 1)
        known = self._weights > 1e-6
        mean = np.where(known, self._weighted / np.where(known, self._weights, 1), overall)
        return mean.reshape(self._shape).astype(np.float32)


def unit_range(saliency: NDArray[np.float32]) -> NDArray[np.float32]:
    """Stretched to 0..1; all zero where there is nothing to stretch but rounding errors."""
    low, high = float(saliency.min()), float(saliency.max())
    if not high - low > 1e-6:
        return np.zeros_like(saliency)
    return (saliency - np.float32(low)) / np.float32(high - low)
