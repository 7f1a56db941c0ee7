"""Merge class masks of tiles: each pixel keeps the class that the tile with the nearest centre gives it."""

import itertools

import numpy as np
from numpy.typing import NDArray

from tasks.image_segmentation import Segments
from tasks.vision.contours import contours_of_mask, mask_of_contours
from tasks.vision.image import Image
from tasks.vision.tiles import Tile


class PixelMerger:
    """Collect the masks of the tiles of one image. It holds two bytes for each pixel of the image.

    Args:
        image: the whole image.
        tiles: all tiles, row by row.
    """

    def __init__(self, image: Image, tiles: list[Tile]) -> None:
        self._classes = np.zeros((image.height, image.width), np.uint16)
        self._columns = _middles(sorted({(tile.left, tile.right) for tile in tiles}))
        self._rows = _middles(sorted({(tile.top, tile.bottom) for tile in tiles}))
        self._labels: dict[str, int] = {}
        self._pixels: dict[str, float] = {}
        self._scores: dict[str, float] = {}

    def add(self, tile: Tile, prediction: Segments) -> None:
        """Add the prediction for a tile, in pixels of the tile."""
        left, right = self._columns[tile.left]
        top, bottom = self._rows[tile.top]
        part = self._classes[top:bottom, left:right]
        for label, score, contours in zip(
            prediction.labels, prediction.scores.tolist(), prediction.contours, strict=True
        ):
            mask = mask_of_contours(contours, tile.right - tile.left, tile.bottom - tile.top).astype(np.bool_)
            mask = mask[top - tile.top : bottom - tile.top, left - tile.left : right - tile.left]
            part[mask] = self._labels.setdefault(label, len(self._labels) + 1)
            count = float(np.count_nonzero(mask))
            self._pixels[label] = self._pixels.get(label, 0.0) + count
            self._scores[label] = self._scores.get(label, 0.0) + count * score

    def result(self) -> Segments:
        """Return one object for each class, with the mean of its scores by pixels."""
        labels = [label for label in self._labels if self._pixels[label]]
        return Segments(
            labels=labels,
            scores=np.array([self._scores[label] / self._pixels[label] for label in labels], np.float32),
            contours=[contours_of_mask(self._mask(self._labels[label])) for label in labels],
        )

    def _mask(self, number: int) -> NDArray[np.uint8]:
        return (self._classes == number).view(np.uint8)


def _middles(spans: list[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Return, by the start of each tile along one axis, the part of it that is nearest to its centre."""
    borders = [(end + start) // 2 for (_, end), (start, _) in itertools.pairwise(spans)]
    parts = zip([spans[0][0], *borders], [*borders, spans[-1][1]], strict=True)
    return {start: part for (start, _), part in zip(spans, parts, strict=True)}
