"""Masks for images, 1 keeps a pixel, 0 hides it, and saliency maps from the scores of masked images."""

import cv2
import numpy as np
from numpy.typing import NDArray

Masks = NDArray[np.float32]
"""(n, rows, columns) float32, 0..1, over the whole image; they are enlarged to its size with smooth edges."""

KEEP_PROBABILITY = 0.5
"""The probability that a random mask keeps a cell, as in both papers on RISE."""

_PIXELS_PER_CELL = 8


class RandomMasks:
    """The masks of RISE: random cells, enlarged with smooth edges and shifted by up to a cell.

    Petsiuk, Das, Saenko: RISE, BMVC 2018, section 3.2.
    """

    count: int | None = None
    hides = False

    def __init__(self, cell_rows: int, cell_columns: int, seed: int) -> None:
        self.shape = (cell_rows * _PIXELS_PER_CELL, cell_columns * _PIXELS_PER_CELL)
        self._cells = (cell_rows, cell_columns)
        self._rng = np.random.default_rng(seed)

    def draw(self, count: int, /) -> Masks:
        """Return the next masks, up to `count`."""
        cell_rows, cell_columns = self._cells
        masks = np.empty((count, *self.shape), np.float32)
        for mask in masks:
            # One more cell for the shift, and one on each side for interpolation.
            cells = (self._rng.random((cell_rows + 3, cell_columns + 3)) < KEEP_PROBABILITY).astype(np.float32)
            shift_y, shift_x = self._rng.uniform(0.5, 1.5, 2).tolist()
            to_cells = np.array([[1 / _PIXELS_PER_CELL, 0, shift_x], [0, 1 / _PIXELS_PER_CELL, shift_y]])
            size = self.shape[::-1]
            mask[:] = cv2.warpAffine(cells, to_cells, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        return masks


class OcclusionMasks:
    """Masks that hide a window of two by two cells, which moves by one cell and half over the border.

    The positions come in random order, so that a scan that ends early covers the whole image.
    """

    hides = True

    def __init__(self, cell_rows: int, cell_columns: int, seed: int) -> None:
        self.shape = (cell_rows, cell_columns)
        self.count = (cell_rows + 1) * (cell_columns + 1)
        positions = np.random.default_rng(seed).permutation(self.count)
        self._positions: list[tuple[int, int]] = [divmod(position, cell_columns + 1) for position in positions.tolist()]
        self._next = 0

    def draw(self, count: int, /) -> Masks:
        """Return the next masks, up to `count`."""
        positions = self._positions[self._next : self._next + count]
        self._next += len(positions)
        masks = np.ones((len(positions), *self.shape), np.float32)
        for mask, (row, column) in zip(masks, positions, strict=True):
            mask[max(row - 1, 0) : row + 1, max(column - 1, 0) : column + 1] = 0
        return masks


MaskSource = RandomMasks | OcclusionMasks
"""Masks of one size: `shape` has their rows and columns, `count` their number, or None without an end. With `hides`, a
score counts for the pixels that its mask hides, as a loss, instead of those that it keeps."""


class WeightedMasks:
    """The weighted mean score for every pixel and every target, over samples that keep the pixel.

    RISE (Petsiuk et al. 2018, equation 6) divides the sum of scores times masks by the number of samples and the
    expected value of the masks. This class divides by the sum of the drawn masks for each pixel, which has the same
    limit and less noise. If masks count by what they hide, the weights are the hidden parts.
    """

    def __init__(self, targets: int, rows: int, columns: int, *, hides: bool = False) -> None:
        self._hides = hides
        self._weighted_scores = np.zeros((targets, rows * columns), np.float64)
        self._weights = np.zeros(rows * columns, np.float64)
        self._scores = np.zeros(targets, np.float64)
        self._shape = (targets, rows, columns)
        self.samples = 0

    def add(self, masks: Masks, scores: NDArray[np.float32]) -> None:
        """Add n samples: their (n, rows, columns) masks, and their (n, targets) scores."""
        flat = (1 - masks if self._hides else masks).reshape(len(masks), -1)
        self._weighted_scores += scores.T @ flat
        self._weights += flat.sum(axis=0)
        self._scores += scores.sum(axis=0)
        self.samples += len(masks)

    def mean(self) -> NDArray[np.float32]:
        """Return (targets, rows, columns): weighted mean scores, negative for hidden parts; plain without weights."""
        overall = self._scores[:, np.newaxis] / max(self.samples, 1)
        covered = self._weights > 1e-6
        mean = np.where(covered, self._weighted_scores / np.where(covered, self._weights, 1), overall)
        return (-mean if self._hides else mean).reshape(self._shape).astype(np.float32)


def normalize(saliency: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale a map to 0..1; all zero if its range is within rounding errors."""
    low, high = float(saliency.min()), float(saliency.max())
    if not high - low > 1e-6:
        return np.zeros_like(saliency)
    return (saliency - np.float32(low)) / np.float32(high - low)
