"""The masks through which a model is shown a picture: 1 where it is kept, 0 where it is hidden."""

from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.explanation.explanation import ExplanationMethod

__all__ = ("KEPT", "MaskSource", "Masks", "OcclusionMasks", "RandomMasks", "masks_for")

Masks = NDArray[np.float32]
"""(n, rows, columns) float32, 0..1, over the whole of a picture; enlarged to its size they have smooth edges."""

KEPT = 0.5
"""The share of a picture that a random mask keeps on average, as in both papers on RISE."""

_PIXELS_A_CELL = 8


class MaskSource(Protocol):
    """Masks of one size, one after the other."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    @property
    def count(self) -> int | None:
        """How many there are; None when there is no end of them."""
        ...

    def take(self, count: int, /) -> Masks:
        """The next masks, at most as many as are left."""
        ...

    def saliency(self, mean: NDArray[np.float32], /) -> NDArray[np.float32]:
        """What a pixel is worth, from the mean score of the samples that say something about it (`told`)."""
        ...

    def told(self, masks: Masks, /) -> Masks:
        """How much of each pixel the score of a sample says something about."""
        ...


def masks_for(method: ExplanationMethod, width: int, height: int, grid: int, seed: int) -> MaskSource:
    """The masks of a method for a picture, of `grid` cells along the longer side and cells as square as they can be."""
    longer = max(width, height)
    down, across = max(1, round(grid * height / longer)), max(1, round(grid * width / longer))
    if method is ExplanationMethod.OCCLUSION:
        return OcclusionMasks(down, across, seed)
    return RandomMasks(down, across, seed)


class RandomMasks:
    """RISE's masks: cells kept or hidden at random, enlarged with smooth edges, and moved by up to a cell.

    Petsiuk, Das, Saenko: RISE, BMVC 2018, section 3.2.

    Args:
        down: cells along the height.
        across: cells along the width.
        seed: makes them always the same.
    """

    count = None

    def __init__(self, down: int, across: int, seed: int) -> None:
        self.shape = (down * _PIXELS_A_CELL, across * _PIXELS_A_CELL)
        self._cells = (down, across)
        self._rng = np.random.default_rng(seed)

    def take(self, count: int, /) -> Masks:
        down, across = self._cells
        made = np.empty((count, *self.shape), np.float32)
        for mask in made:
            # One cell more than fits, so that there is something to move in, and one on each side to blend with.
            cells = (self._rng.random((down + 3, across + 3)) < KEPT).astype(np.float32)
            shift_y, shift_x = self._rng.uniform(0.5, 1.5, 2).tolist()
            to_cells = np.array([[1 / _PIXELS_A_CELL, 0, shift_x], [0, 1 / _PIXELS_A_CELL, shift_y]])
            size = self.shape[::-1]
            mask[:] = cv2.warpAffine(cells, to_cells, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        return made

    def saliency(self, mean: NDArray[np.float32], /) -> NDArray[np.float32]:
        return mean

    def told(self, masks: Masks, /) -> Masks:
        return masks


class OcclusionMasks:
    """A window of two by two cells that hides what is under it, moved by one cell at a time, half over the border too.

    The places come in random order, so that a scan which is cut short has looked everywhere.

    Args:
        down: cells along the height.
        across: cells along the width.
        seed: makes their order always the same.
    """

    def __init__(self, down: int, across: int, seed: int) -> None:
        self.shape = (down, across)
        self.count = (down + 1) * (across + 1)
        places = np.random.default_rng(seed).permutation(self.count)
        self._places: list[tuple[int, int]] = [divmod(place, across + 1) for place in places.tolist()]
        self._next = 0

    def take(self, count: int, /) -> Masks:
        places = self._places[self._next : self._next + count]
        self._next += len(places)
        made = np.ones((len(places), *self.shape), np.float32)
        for mask, (row, column) in zip(made, places, strict=True):
            mask[max(row - 1, 0) : row + 1, max(column - 1, 0) : column + 1] = 0
        return made

    def saliency(self, mean: NDArray[np.float32], /) -> NDArray[np.float32]:
        return -mean

    def told(self, masks: Masks, /) -> Masks:
        return 1 - masks
