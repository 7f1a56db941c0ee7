"""Masks for images: 1 keeps a pixel, 0 hides it."""

from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.saliency.explanation import ExplanationMethod

__all__ = ("KEEP_PROBABILITY", "MaskSource", "Masks", "OcclusionMasks", "RandomMasks", "masks_for")

Masks = NDArray[np.float32]
"""(n, rows, columns) float32, 0..1, over the whole image; they are enlarged to its size with smooth edges."""

KEEP_PROBABILITY = 0.5
"""The probability that a random mask keeps a cell, as in both papers on RISE."""

_PIXELS_PER_CELL = 8


class MaskSource(Protocol):
    """A source of masks of one size."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows and columns."""
        ...

    @property
    def count(self) -> int | None:
        """Return the number of masks; None for an endless source."""
        ...

    def draw(self, count: int, /) -> Masks:
        """Return the next masks, up to `count`."""
        ...

    def saliency(self, mean: NDArray[np.float32], /) -> NDArray[np.float32]:
        """Return the saliency from the mean score of each pixel, weighted by `weights`."""
        ...

    def weights(self, masks: Masks, /) -> Masks:
        """Return the weight of the score of each sample for each pixel."""
        ...


def masks_for(method: ExplanationMethod, width: int, height: int, grid: int, seed: int) -> MaskSource:
    """Return the masks of a method for an image, with `grid` cells along its longer side and nearly square cells."""
    longer = max(width, height)
    cell_rows, cell_columns = max(1, round(grid * height / longer)), max(1, round(grid * width / longer))
    if method is ExplanationMethod.OCCLUSION:
        return OcclusionMasks(cell_rows, cell_columns, seed)
    return RandomMasks(cell_rows, cell_columns, seed)


class RandomMasks:
    """The masks of RISE: random cells, enlarged with smooth edges and shifted by up to a cell.

    Petsiuk, Das, Saenko: RISE, BMVC 2018, section 3.2.

    Args:
        cell_rows: cells along the height.
        cell_columns: cells along the width.
        seed: seed of the random numbers.
    """

    count = None

    def __init__(self, cell_rows: int, cell_columns: int, seed: int) -> None:
        self.shape = (cell_rows * _PIXELS_PER_CELL, cell_columns * _PIXELS_PER_CELL)
        self._cells = (cell_rows, cell_columns)
        self._rng = np.random.default_rng(seed)

    def draw(self, count: int, /) -> Masks:
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

    def saliency(self, mean: NDArray[np.float32], /) -> NDArray[np.float32]:
        return mean

    def weights(self, masks: Masks, /) -> Masks:
        return masks


class OcclusionMasks:
    """Masks that hide a window of two by two cells, which moves by one cell and half over the border.

    The positions come in random order, so that a scan that ends early covers the whole image.

    Args:
        cell_rows: cells along the height.
        cell_columns: cells along the width.
        seed: seed of the order.
    """

    def __init__(self, cell_rows: int, cell_columns: int, seed: int) -> None:
        self.shape = (cell_rows, cell_columns)
        self.count = (cell_rows + 1) * (cell_columns + 1)
        positions = np.random.default_rng(seed).permutation(self.count)
        self._positions: list[tuple[int, int]] = [divmod(position, cell_columns + 1) for position in positions.tolist()]
        self._next = 0

    def draw(self, count: int, /) -> Masks:
        positions = self._positions[self._next : self._next + count]
        self._next += len(positions)
        masks = np.ones((len(positions), *self.shape), np.float32)
        for mask, (row, column) in zip(masks, positions, strict=True):
            mask[max(row - 1, 0) : row + 1, max(column - 1, 0) : column + 1] = 0
        return masks

    def saliency(self, mean: NDArray[np.float32], /) -> NDArray[np.float32]:
        return -mean

    def weights(self, masks: Masks, /) -> Masks:
        return 1 - masks
