"""How Chariot reads the items of each task type: exactly the documented fields, within the bounds of the image."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Score = Annotated[float, msgspec.Meta(ge=0, le=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Size = tuple[int, int]
"""Width and height in pixels."""


class _Item(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Classified(_Item):
    label: str
    score: Score


class Detected(_Item):
    """Corners in pixels, y down."""

    label: str
    score: Score
    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def outline(self, size: Size) -> Sequence[NDArray[np.float64]]:
        corners = [(self.xmin, self.ymin), (self.xmax, self.ymin), (self.xmax, self.ymax), (self.xmin, self.ymax)]
        return [np.array(corners)]


class Oriented(_Item):
    """Shares of the image's width (cx, w) and height (cy, h); r in radians, clockwise."""

    label: str
    score: Score
    cx: Share
    cy: Share
    w: Annotated[float, msgspec.Meta(gt=0)]
    h: Annotated[float, msgspec.Meta(gt=0)]
    r: float

    def outline(self, size: Size) -> Sequence[NDArray[np.float64]]:
        width, height = size
        return [oriented_corners((self.cx * width, self.cy * height, self.w * width, self.h * height, self.r))]


class Point(_Item):
    x: float
    y: float


class Segmented(_Item):
    label: str
    score: Score
    contour: list[list[Point]]

    def outline(self, size: Size) -> Sequence[NDArray[np.float64]]:
        return [np.array([(point.x, point.y) for point in part]) for part in self.contour]


class AnsweredPrompt(_Item):
    prompt: str
    answer: str


Outlined = Detected | Oriented | Segmented
ITEMS: Mapping[str, type[Classified | AnsweredPrompt | Outlined]] = {
    "IMAGE_CLASSIFICATION": Classified,
    "OBJECT_DETECTION": Detected,
    "ORIENTED_OBJECT_DETECTION": Oriented,
    "IMAGE_SEGMENTATION": Segmented,
    "IMAGE_TEXT_TO_TEXT": AnsweredPrompt,
}


def parse_items(task_type: str, items: object, size: Size) -> Sequence[Any]:
    """Parse the items of one image.

    Raise ValueError if a field is missing, unknown or of another type, or if an item lies outside the image.
    """
    parsed_items: list[Any] = msgspec.convert(items, list[ITEMS[task_type]])
    for item in parsed_items:
        if isinstance(item, (Detected, Segmented)):
            points = np.concatenate(item.outline(size))
            if (points < 0).any() or (points > size).any():
                raise ValueError(f"{item.label} lies outside the image")
    return parsed_items


def oriented_corners(box: tuple[float, float, float, float, float]) -> NDArray[np.float64]:
    """Return the corners of a box of centre, width, height and radians clockwise, all in pixels, y down."""
    cx, cy, w, h, r = box
    axes = np.array([[np.cos(r), np.sin(r)], [-np.sin(r), np.cos(r)]])
    return np.array([(-w, -h), (w, -h), (w, h), (-w, h)]) / 2 @ axes + (cx, cy)


def iou(first: Sequence[NDArray[np.float64]], second: Sequence[NDArray[np.float64]], size: Size) -> float:
    """Return intersection over union of two shapes, each filled by the even-odd rule."""
    masks = [_mask_of(shape, size) for shape in (first, second)]
    return float((masks[0] & masks[1]).sum() / max((masks[0] | masks[1]).sum(), 1))


def _mask_of(contours: Sequence[NDArray[np.float64]], size: Size) -> NDArray[np.bool_]:
    mask = np.zeros((size[1], size[0]), np.uint8)
    cv2.fillPoly(mask, [contour.round().astype(np.int32) for contour in contours], (1,))
    return mask.astype(np.bool_)


def recall(items: Sequence[Outlined], truth: Sequence[tuple[str, NDArray[np.float64]]], size: Size) -> float:
    """Return the share of true objects that an item with the same label overlaps by half."""
    hits = [
        any(item.label == label and iou(item.outline(size), [shape], size) >= 0.5 for item in items)
        for label, shape in truth
    ]
    return sum(hits) / len(hits)
