"""Masks for images, 1 keeps a pixel, 0 hides it, and saliency maps from the scores of masked images."""

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.float32]
"""(rows, columns) float32, 0..1, over the whole image; it is enlarged to its size with smooth edges."""

KEEP_PROBABILITY = 0.5
"""The probability that a random mask keeps a cell, as in both papers on RISE."""

_PIXELS_PER_CELL = 8


def random_masks(cell_rows: int, cell_columns: int, seed: int) -> Iterator[Mask]:
    """Yield the masks of RISE without end: random cells, enlarged with smooth edges and shifted by up to a cell.

    Petsiuk, Das, Saenko: RISE, BMVC 2018, section 3.2.
    """
    rng = np.random.default_rng(seed)
    size = (cell_columns * _PIXELS_PER_CELL, cell_rows * _PIXELS_PER_CELL)
    while True:
        # One more cell for the shift, and one on each side for interpolation.
        cells = (rng.random((cell_rows + 3, cell_columns + 3)) < KEEP_PROBABILITY).astype(np.float32)
        shift_y, shift_x = rng.uniform(0.5, 1.5, 2).tolist()
        to_cells = np.array([[1 / _PIXELS_PER_CELL, 0, shift_x], [0, 1 / _PIXELS_PER_CELL, shift_y]])
        mask = cv2.warpAffine(cells, to_cells, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        yield np.asarray(mask, np.float32)


def occlusion_masks(cell_rows: int, cell_columns: int, seed: int) -> Iterator[Mask]:
    """Yield masks that hide a window of two by two cells, which moves by one cell and half over the border.

    The positions come in random order, so that a scan that ends early covers the whole image.
    """
    positions: list[int] = np.random.default_rng(seed).permutation(window_count(cell_rows, cell_columns)).tolist()
    for position in positions:
        row, column = divmod(position, cell_columns + 1)
        mask = np.ones((cell_rows, cell_columns), np.float32)
        mask[max(row - 1, 0) : row + 1, max(column - 1, 0) : column + 1] = 0
        yield mask


def window_count(cell_rows: int, cell_columns: int) -> int:
    """Return the number of `occlusion_masks`."""
    return (cell_rows + 1) * (cell_columns + 1)


class WeightedMasks:
    """The weighted mean score for every pixel and every target, over samples that keep the pixel.

    RISE (Petsiuk et al. 2018, equation 6) divides the sum of scores times masks by the number of samples and the
    expected value of the masks. This class divides by the sum of the drawn masks for each pixel, which has the same
    limit and less noise. If masks count by what they hide, the weights are the hidden parts.
    """

    def __init__(self, *, hides: bool = False) -> None:
        self._hides = hides
        self._weighted_scores = self._weights = self._scores = np.zeros((), np.float64)
        self.samples = 0

    def add(self, masks: NDArray[np.float32], scores: NDArray[np.float32]) -> None:
        """Add n samples: their (n, rows, columns) masks, and their (n, targets) scores."""
        kept = 1 - masks if self._hides else masks
        self._weighted_scores = self._weighted_scores + np.tensordot(scores.T, kept, 1)
        self._weights = self._weights + kept.sum(axis=0)
        self._scores = self._scores + scores.sum(axis=0)
        self.samples += len(masks)

    def mean(self) -> NDArray[np.float32]:
        """Return (targets, rows, columns): weighted mean scores, negative for hidden parts; plain without weights."""
        overall = self._scores[:, np.newaxis, np.newaxis] / self.samples
        covered = self._weights > 1e-6
        mean = np.where(covered, self._weighted_scores / np.where(covered, self._weights, 1), overall)
        return (-mean if self._hides else mean).astype(np.float32)


def normalize(saliency: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale a map to 0..1; all zero if its range is within rounding errors."""
    low, high = float(saliency.min()), float(saliency.max())
    if not high - low > 1e-6:
        return np.zeros_like(saliency)
    return (saliency - np.float32(low)) / np.float32(high - low)
