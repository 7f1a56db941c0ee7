"""Enlarge masks and maps from the grid of a graph's output to the pixels of the image."""

import math
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from tasks.vision.contours import Contour, contours_of_mask

_TILE = 1024
"""Pixels. Planes are enlarged in tiles of this side, so that a float tile needs only 4 MB."""

_Tile = tuple[int, int, int, int]
"""Column, row, width and height in image pixels."""


class MaskGrid:
    """The output planes (k, rows, columns) of one image, without the cells that are completely in the padding."""

    def __init__(self, planes: NDArray[np.float32], answer: RawOutputs) -> None:
        placement, (rows, columns) = answer.placement, planes.shape[1:]
        across, down = columns / answer.width, rows / answer.height
        left, right = _cells(placement.offset_x, placement.scale_x * placement.image_width, across, columns)
        top, bottom = _cells(placement.offset_y, placement.scale_y * placement.image_height, down, rows)
        self.planes = planes[:, top:bottom, left:right]
        self._width, self._height = placement.image_width, placement.image_height
        # Cell coordinate = image pixel coordinate * step + origin, where integers are centres on both sides.
        self._step_x, self._step_y = placement.scale_x * across, placement.scale_y * down
        self._origin_x = placement.offset_x * across + self._step_x / 2 - 0.5 - left
        self._origin_y = placement.offset_y * down + self._step_y / 2 - 0.5 - top

    def prototype_contours(self, coefficients: NDArray[np.float32], box: NDArray[np.float32]) -> list[Contour]:
        """Return the contours, in image pixels, of an object whose logits are a linear combination of the planes.

        Args:
            coefficients: (k,) weights of the planes.
            box: (4,) xyxy in image pixels, within the image. The object is limited to pixels with centres in it.
        """
        left, top, right, bottom = (math.ceil(edge - 0.5) for edge in box.tolist())
        if left >= right or top >= bottom:
            return []
        first_column, last_column = self._cell_range(left, right, self._origin_x, self._step_x, 2)
        first_row, last_row = self._cell_range(top, bottom, self._origin_y, self._step_y, 1)
        part = self.planes[:, first_row:last_row, first_column:last_column]
        logits = np.ascontiguousarray(np.tensordot(coefficients, part, axes=1))
        return self._contours(logits, (first_row, first_column), (left, top, right - left, bottom - top))

    def plane_contours(self, plane: int) -> list[Contour]:
        """Return the contours, in image pixels, of an object whose logits are one plane."""
        logits = np.ascontiguousarray(self.planes[plane])
        rows, columns = np.nonzero(logits > 0)
        if not len(rows):
            return []
        # Interpolated logits can be positive only within one cell of a positive cell. Every cell overlaps the image.
        left = max(math.floor((columns.min() - 1 - self._origin_x) / self._step_x), 0)
        right = min(math.ceil((columns.max() + 1 - self._origin_x) / self._step_x) + 1, self._width)
        top = max(math.floor((rows.min() - 1 - self._origin_y) / self._step_y), 0)
        bottom = min(math.ceil((rows.max() + 1 - self._origin_y) / self._step_y) + 1, self._height)
        return self._contours(logits, (0, 0), (left, top, right - left, bottom - top))

    def enlarged(self, plane: int) -> NDArray[np.float32]:
        """Return one plane at the pixels of the image, as (height, width)."""
        return self._enlarge(np.ascontiguousarray(self.planes[plane]), (0, 0), (0, 0, self._width, self._height))

    def highest_planes(self) -> NDArray[np.int32]:
        """Return the index of the highest plane at each pixel of the image, as (height, width)."""
        indices: NDArray[np.int32] = np.zeros((self._height, self._width), np.int32)
        for tile in _tiles((0, 0, self._width, self._height)):
            column, row, width, height = tile
            highest = self._enlarge(np.ascontiguousarray(self.planes[0]), (0, 0), tile)
            view = indices[row : row + height, column : column + width]
            for number in range(1, len(self.planes)):
                plane = self._enlarge(np.ascontiguousarray(self.planes[number]), (0, 0), tile)
                view[plane > highest] = number
                np.maximum(highest, plane, out=highest)
        return indices

    def _contours(self, logits: NDArray[np.float32], corner: tuple[int, int], region: _Tile) -> list[Contour]:
        """Return the contours of the pixels in `region` of the image with positive (rows, columns) `logits`.

        `corner` is the first row and column of these logits in their plane.
        """
        left, top, across, down = region
        mask = np.empty((down, across), np.uint8)
        for tile in _tiles(region):
            column, row, width, height = tile
            # A positive logit is a probability over 0.5, so no sigmoid is needed.
            inside = self._enlarge(logits, corner, tile) > 0
            mask[row - top : row - top + height, column - left : column - left + width] = inside
        return [contour + np.array([left, top], np.float32) for contour in contours_of_mask(mask)]

    def _enlarge(self, part: NDArray[np.float32], corner: tuple[int, int], tile: _Tile) -> NDArray[np.float32]:
        """Interpolate `part` bilinearly at the pixels of a tile; `corner` is the same as for `_contours`."""
        column, row, width, height = tile
        to_cells = np.array(
            [
                [self._step_x, 0, self._origin_x + column * self._step_x - corner[1]],
                [0, self._step_y, self._origin_y + row * self._step_y - corner[0]],
            ]
        )
        return np.asarray(
            cv2.warpAffine(
                part,
                to_cells,
                (width, height),
                flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                borderMode=cv2.BORDER_REPLICATE,
            ),
            np.float32,
        )

    def _cell_range(self, start: int, end: int, origin: float, step: float, axis: int) -> tuple[int, int]:
        """Return the range of cells, at least one, that the pixels start..end need for interpolation."""
        cells = self.planes.shape[axis]
        first = min(max(math.floor(start * step + origin), 0), cells - 1)
        last = min(max(math.ceil((end - 1) * step + origin) + 1, first + 1), cells)
        return first, last


def _tiles(region: _Tile) -> Iterator[_Tile]:
    left, top, across, down = region
    for row in range(top, top + down, _TILE):
        for column in range(left, left + across, _TILE):
            yield column, row, min(_TILE, left + across - column), min(_TILE, top + down - row)


def _cells(offset: float, extent: float, per_pixel: float, count: int) -> tuple[int, int]:
    """Return the range of cells, at least one, that overlap the image at `offset` with `extent`, in input pixels."""
    first = min(max(math.floor(offset * per_pixel + 1e-6), 0), count - 1)
    return first, min(max(math.ceil((offset + extent) * per_pixel - 1e-6), first + 1), count)
