"""The geometry that merging the objects of tiles needs: boxes, oriented boxes and contours in pixels of the image."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.vision.contours import Contour, bounds_of, contours_of_mask, mask_of_contours
from tasks.vision.filtering import probabilistic_ious, rotated_intersections, suppress_boxes

Indices = NDArray[np.intp]

_MAX_TURN = math.radians(15)
"""Largest difference in direction between parts of one object."""


class Shapes(ABC):
    """N objects of one geometry, in pixels of the whole image, with (N, 4) xyxy `bounds`."""

    def __init__(self, bounds: NDArray[np.float32]) -> None:
        self.bounds = bounds

    @abstractmethod
    def area(self, index: int, /) -> float:
        """Return the area of an object in pixels."""

    @abstractmethod
    def intersections(self, index: int, others: Indices, /) -> NDArray[np.float64]:
        """Return (K,) areas in pixels that an object shares with each of K `others`, whose bounds meet its own."""

    @abstractmethod
    def union(self, indices: Indices, /) -> Any:
        """Return the place of one object that several are parts of."""

    def parallel(self, index: int, others: Indices, /) -> NDArray[np.bool_]:
        """Return (K,) whether an object can continue in each of `others`: by their directions, if they have any."""
        del index
        return np.ones(len(others), np.bool_)

    def suppress(
        self, indices: Indices, scores: NDArray[np.float32], class_ids: Indices, iou_threshold: float, /
    ) -> Indices:
        """Return the `indices` that non-maximum suppression keeps. `scores` and `class_ids` are of all objects."""
        return indices[suppress_boxes(self.bounds[indices], scores[indices], class_ids[indices], iou_threshold)]


def near(bounds: NDArray[np.float32], index: int, others: Indices) -> Indices:
    """Return the `others` whose (N, 4) xyxy bounds meet the bounds of an object."""
    left, top, right, bottom = bounds[index]
    boxes = bounds[others]
    meets = (boxes[:, 0] < right) & (boxes[:, 2] > left) & (boxes[:, 1] < bottom) & (boxes[:, 3] > top)
    return others[meets]


class Boxes(Shapes):
    """Axis-aligned boxes, (N, 4) xyxy."""

    def area(self, index: int, /) -> float:
        left, top, right, bottom = self.bounds[index].tolist()
        return (right - left) * (bottom - top)

    def intersections(self, index: int, others: Indices, /) -> NDArray[np.float64]:
        box, boxes = self.bounds[index].astype(np.float64), self.bounds[others].astype(np.float64)
        sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
        return np.prod(np.maximum(sides, 0), axis=1)

    def union(self, indices: Indices, /) -> NDArray[np.float32]:
        """Return the (4,) box around several."""
        boxes = self.bounds[indices]
        return np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])


class OrientedBoxes(Shapes):
    """Oriented boxes, (N, 5) cx, cy, w, h, r; r in radians, clockwise with y down."""

    def __init__(self, boxes: NDArray[np.float32]) -> None:
        self._boxes = boxes
        rows = boxes.astype(np.float64).tolist()
        corners = [cv2.boxPoints(((cx, cy), (w, h), math.degrees(r))) for cx, cy, w, h, r in rows]
        self._corners = np.array(corners, np.float32).reshape(-1, 4, 2)
        super().__init__(np.concatenate([self._corners.min(axis=1), self._corners.max(axis=1)], axis=1))

    def area(self, index: int, /) -> float:
        return float(self._boxes[index, 2]) * float(self._boxes[index, 3])

    def intersections(self, index: int, others: Indices, /) -> NDArray[np.float64]:
        return rotated_intersections(np.broadcast_to(self._boxes[index], (len(others), 5)), self._boxes[others])

    def parallel(self, index: int, others: Indices, /) -> NDArray[np.bool_]:
        # A part of a long object can be higher than it is long, so that the axes may be swapped.
        turn = np.abs(self._boxes[others, 4] - self._boxes[index, 4]) % (math.pi / 2)
        return np.minimum(turn, math.pi / 2 - turn) <= _MAX_TURN

    def suppress(
        self, indices: Indices, scores: NDArray[np.float32], class_ids: Indices, iou_threshold: float, /
    ) -> Indices:
        order = indices[(-scores[indices]).argsort(kind="stable")]
        order = order[scores[order] > 0]
        kept: list[int] = []
        # As `suppress_rotated_boxes`, but it compares only boxes that meet: an image of tiles has thousands.
        for position, index in enumerate(order.tolist()):
            better = order[:position]
            better = near(self.bounds, index, better[class_ids[better] == class_ids[index]])
            overlaps = probabilistic_ious(self._boxes[better], self._boxes[index : index + 1])
            if not (overlaps >= iou_threshold).any():
                kept.append(index)
        return np.array(kept, np.intp)

    def union(self, indices: Indices, /) -> NDArray[np.float32]:
        """Return the (5,) smallest oriented box around several, in the direction of the first."""
        (cx, cy), (w, h), degrees = cv2.minAreaRect(self._corners[indices].reshape(-1, 2))
        angle = math.radians(degrees)
        quarters = round((float(self._boxes[indices[0], 4]) - angle) / (math.pi / 2))
        if quarters % 2:
            w, h = h, w
        return np.array([cx, cy, w, h, angle + quarters * math.pi / 2], np.float32)


class Outlines(Shapes):
    """The contours of each object (`tasks.vision.contours`). Areas are numbers of pixels, without holes."""

    def __init__(self, contours: Sequence[Sequence[Contour]]) -> None:
        super().__init__(bounds_of(contours))
        self._contours = contours
        self._areas: dict[int, float] = {}

    def area(self, index: int, /) -> float:
        if index not in self._areas:
            self._areas[index] = float(self._mask(index, self.bounds[index]).sum(dtype=np.int64))
        return self._areas[index]

    def intersections(self, index: int, others: Indices, /) -> NDArray[np.float64]:
        areas = np.zeros(len(others), np.float64)
        for position, other in enumerate(others.tolist()):
            own, bounds = self.bounds[index], self.bounds[other]
            window = np.concatenate([np.maximum(own[:2], bounds[:2]), np.minimum(own[2:], bounds[2:])])
            areas[position] = np.count_nonzero(self._mask(index, window) & self._mask(other, window))
        return areas

    def union(self, indices: Indices, /) -> list[Contour]:
        """Return the contours of the pixels of several objects. Holes that no object fills stay."""
        bounds = self.bounds[indices]
        window = np.concatenate([bounds[:, :2].min(axis=0), bounds[:, 2:].max(axis=0)])
        mask = self._mask(int(indices[0]), window)
        for index in indices[1:].tolist():
            mask |= self._mask(index, window)
        return [contour + np.floor(window[:2]) for contour in contours_of_mask(mask)]

    def _mask(self, index: int, window: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the pixels of an object in a window (4,) xyxy, at least one."""
        left, top = np.floor(window[:2])
        width, height = max(1, math.ceil(window[2] - left)), max(1, math.ceil(window[3] - top))
        return mask_of_contours([contour - np.array([left, top]) for contour in self._contours[index]], width, height)
