"""Outlines of objects, from prototype masks and a coefficient for each (YOLACT, as Ultralytics exports it)."""

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.graph import ImageGraph, RawAnswer
from app.runtimes.onnxruntime.heads.detection import detect
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layout import Layout
from app.runtimes.onnxruntime.placement import Placement
from tasks.image_segmentation import SegmentationInput, Segments
from tasks.vision.boxes import clip_boxes
from tasks.vision.contours import Contour, contours_of_mask

__all__ = ("OnnxImageSegmenter",)

_TILE = 1024
"""Pixels: masks are enlarged in tiles of this side, so that 4 MB hold what is not yet black or white."""


class OnnxImageSegmenter:
    """An `ImageSegmenter` of two outputs: objects with nm coefficients each, and prototypes [b, nm, height, width].

    Args:
        graph: the model.
        labels: one for each class.
        layout: how the objects are read.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, layout: Layout) -> None:
        self._graph = graph
        self._labels = labels
        self._layout = layout

    def __call__(self, inputs: Sequence[SegmentationInput], /) -> Sequence[Segments]:
        answers = self._graph.answers([item.image for item in inputs])
        return [self._segments(item, answer) for item, answer in zip(inputs, answers, strict=True)]

    def _segments(self, item: SegmentationInput, answer: RawAnswer) -> Segments:
        found = detect(answer.outputs[0], self._layout, item.parameters)
        prototypes: NDArray[np.float32] = answer.outputs[1].astype(np.float32, copy=False)
        grid = _Grid(prototypes, answer.placement, self._graph.height, self._graph.width)
        boxes = answer.placement.boxes_to_image(found.boxes)
        boxes = clip_boxes(boxes, item.image.width, item.image.height)
        return Segments(
            labels=self._labels.of(found.class_ids.tolist()),
            scores=found.scores,
            contours=[grid.contours(coefficients, box) for coefficients, box in zip(found.extras, boxes, strict=True)],
        )


class _Grid:
    """The prototypes of one picture, without the cells that lie wholly in the padding around it.

    Args:
        prototypes: (nm, rows, columns), over the whole of the model's input.
        placement: where the picture lies in the input.
        height: of the input, pixels.
        width: of the input, pixels.
    """

    def __init__(self, prototypes: NDArray[np.float32], placement: Placement, height: int, width: int) -> None:
        rows, columns = prototypes.shape[1:]
        across, down = columns / width, rows / height
        left, right = _cells(placement.offset_x, placement.scale_x * placement.image_width, across, columns)
        top, bottom = _cells(placement.offset_y, placement.scale_y * placement.image_height, down, rows)
        self._prototypes = prototypes[:, top:bottom, left:right]
        # Cell coordinate = image pixel coordinate * step + origin, where whole numbers are centres on both sides.
        self._step_x, self._step_y = placement.scale_x * across, placement.scale_y * down
        self._origin_x = placement.offset_x * across + self._step_x / 2 - 0.5 - left
        self._origin_y = placement.offset_y * down + self._step_y / 2 - 0.5 - top

    def contours(self, coefficients: NDArray[np.float32], box: NDArray[np.float32]) -> list[Contour]:
        """The outline of one object, in image pixels.

        Args:
            coefficients: (nm,), how much of each prototype is in the object's mask.
            box: (4,) xyxy in image pixels, within the image; only pixels whose centres it holds belong to the object.
        """
        left, top, right, bottom = (math.ceil(edge - 0.5) for edge in box.tolist())
        if left >= right or top >= bottom:
            return []
        mask = self._mask(coefficients, left, top, right, bottom)
        return [contour + np.array([left, top], np.float32) for contour in contours_of_mask(mask)]

    def _mask(
        self, coefficients: NDArray[np.float32], left: int, top: int, right: int, bottom: int
    ) -> NDArray[np.uint8]:
        """The object's pixels within image columns left..right and rows top..bottom: (rows, columns) of 0 and 1."""
        first_column, last_column = self._needed(left, right, self._origin_x, self._step_x, 2)
        first_row, last_row = self._needed(top, bottom, self._origin_y, self._step_y, 1)
        part = self._prototypes[:, first_row:last_row, first_column:last_column]
        logits = np.ascontiguousarray(np.tensordot(coefficients, part, axes=1))
        mask = np.empty((bottom - top, right - left), np.uint8)
        for row in range(top, bottom, _TILE):
            for column in range(left, right, _TILE):
                height, width = min(_TILE, bottom - row), min(_TILE, right - column)
                to_cells = np.array(
                    [
                        [self._step_x, 0, self._origin_x + column * self._step_x - first_column],
                        [0, self._step_y, self._origin_y + row * self._step_y - first_row],
                    ]
                )
                enlarged = cv2.warpAffine(
                    logits,
                    to_cells,
                    (width, height),
                    flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                    borderMode=cv2.BORDER_REPLICATE,
                )
                # A logit over 0 is a probability over one half: the sigmoid need not be computed.
                mask[row - top : row - top + height, column - left : column - left + width] = enlarged > 0
        return mask

    def _needed(self, start: int, end: int, origin: float, step: float, axis: int) -> tuple[int, int]:
        """The cells between which the pixels start..end lie, at least one."""
        cells = self._prototypes.shape[axis]
        first = min(max(math.floor(start * step + origin), 0), cells - 1)
        last = min(max(math.ceil((end - 1) * step + origin) + 1, first + 1), cells)
        return first, last


def _cells(offset: float, extent: float, per_pixel: float, count: int) -> tuple[int, int]:
    """The cells that touch the picture, which begins at `offset` and is `extent` input pixels long; at least one."""
    first = min(max(math.floor(offset * per_pixel + 1e-6), 0), count - 1)
    return first, min(max(math.ceil((offset + extent) * per_pixel - 1e-6), first + 1), count)
