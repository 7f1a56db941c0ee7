"""Merge the classes of pixels in tiles: where tiles overlap, their scores are averaged."""

import itertools

import numpy as np
from numpy.typing import NDArray

from app.plugins.tiling.tiles import Tile
from tasks.image_segmentation import Segments
from tasks.vision.contours import contours_of_mask, mask_of_contours
from tasks.vision.image import Image

_CANDIDATES = 4
"""Classes that each pixel keeps until all its tiles have come. This bounds the memory for models with many classes."""

_NEGLIGIBLE = 1e-3
"""A lower score makes no class a candidate: most classes are that unlikely in most pixels."""


class PixelMerger:
    """Collect the scores of the tiles of one image, which come row by row.

    It holds two bytes for each pixel of the image, and 28 for each pixel of one row of tiles. In an average, a tile
    weighs less towards its borders, so that no seams appear. A pixel with an average of at most `floor` belongs to no
    class.
    """

    def __init__(self, image: Image, tiles: list[Tile], floor: float) -> None:
        self._classes = np.zeros((image.height, image.width), np.uint16)
        self._across = _weights([(tile.left, tile.right) for tile in tiles])
        self._down = _weights([(tile.top, tile.bottom) for tile in tiles])
        self._floor = floor
        height = max(tile.bottom - tile.top for tile in tiles)
        self._top = 0
        self._candidates = np.zeros((_CANDIDATES, height, image.width), np.uint16)
        self._sums = np.zeros((_CANDIDATES, height, image.width), np.float32)
        self._weights = np.zeros((height, image.width), np.float32)
        self._labels: dict[str, int] = {}
        self._pixels = np.zeros(1, np.int64)
        self._scores = np.zeros(1, np.float64)

    def add(self, tile: Tile, prediction: Segments) -> None:
        """Add the prediction for a tile, in pixels of the tile."""
        if tile.top > self._top:
            self._finish(tile.top)
        height, width = tile.bottom - tile.top, tile.right - tile.left
        part = (..., slice(tile.top - self._top, tile.bottom - self._top), slice(tile.left, tile.right))
        weights = np.outer(self._down[tile.top], self._across[tile.left])
        self._weights[part] += weights
        for index, label in enumerate(prediction.labels):
            number = self._labels.setdefault(label, len(self._labels) + 1)
            if prediction.pixel_scores is not None:
                scores = prediction.pixel_scores[index]
            else:
                # A model without probabilities votes for one class in each pixel.
                scores = mask_of_contours(prediction.contours[index], width, height) * prediction.scores[index]
            _add(self._candidates[part], self._sums[part], number, (scores * weights).astype(np.float32))

    def result(self) -> Segments:
        """Return one object for each class, with the mean of its scores by pixels."""
        self._finish(len(self._classes))
        labels = [label for label, number in self._labels.items() if self._pixels[number : number + 1].any()]
        numbers = [self._labels[label] for label in labels]
        return Segments(
            labels=labels,
            scores=(self._scores[numbers] / self._pixels[numbers]).astype(np.float32),
            contours=[contours_of_mask((self._classes == number).view(np.uint8)) for number in numbers],
        )

    def _finish(self, bottom: int) -> None:
        """Decide the classes of the pixels above a row, which has no more tiles above it."""
        rows = min(bottom - self._top, len(self._weights))
        best = self._sums[:, :rows].argmax(axis=0)[np.newaxis]
        scores = np.take_along_axis(self._sums[:, :rows], best, 0)[0] / np.maximum(self._weights[:rows], 1e-6)
        classes = np.take_along_axis(self._candidates[:, :rows], best, 0)[0]
        classes = np.where(scores > self._floor, classes, 0)
        self._classes[self._top : self._top + rows] = classes[: len(self._classes) - self._top]
        count = len(self._labels) + 1
        self._pixels = _sum(self._pixels, np.bincount(classes.ravel(), minlength=count))
        self._scores = _sum(self._scores, np.bincount(classes.ravel(), scores.ravel(), count))
        for strip in (self._candidates, self._sums, self._weights[np.newaxis]):
            strip[:, : strip.shape[1] - rows] = strip[:, rows:].copy()
            strip[:, strip.shape[1] - rows :] = 0
        self._top = bottom


def _add(candidates: NDArray[np.uint16], sums: NDArray[np.float32], number: int, scores: NDArray[np.float32]) -> None:
    """Add the (h, w) scores of a class to the (k, h, w) sums of the candidates, in place of lower ones."""
    matches = candidates == number
    np.add(sums, scores, out=sums, where=matches)
    rows, columns = np.nonzero(~matches.any(axis=0) & (scores > np.maximum(sums.min(axis=0), _NEGLIGIBLE)))
    slots = sums[:, rows, columns].argmin(axis=0)
    sums[slots, rows, columns] = scores[rows, columns]
    candidates[slots, rows, columns] = number


def _sum(totals: NDArray[np.number], counts: NDArray[np.number]) -> NDArray[np.number]:
    """Return sums by class, where later ones may have more classes."""
    return counts + np.pad(totals, (0, len(counts) - len(totals)))


def _weights(spans: list[tuple[int, int]]) -> dict[int, NDArray[np.float64]]:
    """Return, by the start of each tile along one axis, the weight of its pixels: lower where neighbours overlap."""
    ordered = sorted(set(spans))
    before = [0, *(end - start for (_, end), (start, _) in itertools.pairwise(ordered))]
    weights: dict[int, NDArray[np.float64]] = {}
    for (start, end), shared, next_shared in zip(ordered, before, [*before[1:], 0], strict=True):
        positions = np.arange(end - start)
        rising, falling = (positions + 1) / (shared + 1), (end - start - positions) / (next_shared + 1)
        weights[start] = np.minimum(1.0, np.minimum(rising, falling))
    return weights
