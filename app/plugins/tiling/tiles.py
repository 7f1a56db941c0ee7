"""Cut an image into overlapping tiles."""

from collections.abc import Sequence

import msgspec

from tasks.vision.image import Image

MAX_OVERLAP = 0.8
"""Largest fraction of a tile that its neighbour may share; more would multiply the work."""


class Tile(msgspec.Struct, frozen=True):
    """A part of an image: left, top, right and bottom in pixels, right and bottom exclusive."""

    left: int
    top: int
    right: int
    bottom: int

    def cut(self, image: Image, kind: type[Image] = Image) -> Image:
        """Return this part of a full-size image as a view, without copying pixels."""
        return kind(image.pixels[self.top : self.bottom, self.left : self.right])


def tile_starts(side: int, size: int, overlap: float) -> list[int]:
    """Return the first pixel of each tile of `size` pixels along an axis of `side` pixels.

    The tiles lie evenly: neighbours share at least the fraction `overlap` of a tile, 0..`MAX_OVERLAP`.
    """
    last = count_tiles(side, size, overlap) - 1
    return [round(index * (side - size) / last) for index in range(last + 1)] if last else [0]


def count_tiles(side: int, size: int, overlap: float) -> int:
    """Return the number of tiles along one axis, with the arguments of `tile_starts`."""
    shared = min(round(size * overlap), size - 1)
    return 1 if side <= size else -(-(side - shared) // (size - shared))


def tiles_of(width: int, height: int, size: tuple[int, int], overlap: float) -> list[Tile]:
    """Return the tiles of an image row by row. `size` is the (height, width) of a tile; arguments in pixels."""
    rows, columns = size
    return [
        Tile(left, top, min(left + columns, width), min(top + rows, height))
        for top in tile_starts(height, rows, overlap)
        for left in tile_starts(width, columns, overlap)
    ]


def smallest_tile(sizes: Sequence[tuple[int, int]], overlap: float, max_tiles: int) -> int:
    """Return the side of the smallest square tile with which images need at most `max_tiles`, in pixels.

    `sizes` are the (width, height) of the images in pixels. Images that are not larger than a tile need none.
    """

    def fits(size: int) -> bool:
        counts = (count_tiles(width, size, overlap) * count_tiles(height, size, overlap) for width, height in sizes)
        return sum(count for count in counts if count > 1) <= max_tiles

    low, high = 1, max(max(size) for size in sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low
