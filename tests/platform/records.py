"""How Chariot reads the items of each task type: exactly the documented fields, within the bounds of the image."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

Score = Annotated[float, msgspec.Meta(ge=0, le=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Size = tuple[int, int]
"""Width and height in pixels."""


class _Item(msgspec.Struct, forbid_unknown_fields=True):
    def points(self) -> Sequence[tuple[float, float]]:
        """Return the points in pixels that must be inside the image."""
        return ()


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

    def points(self) -> Sequence[tuple[float, float]]:
        return [(self.xmin, self.ymin), (self.xmax, self.ymax)]


class Oriented(_Item):
    """Shares of the image's width (cx, w) and height (cy, h); r in radians, clockwise."""

    label: str
    score: Score
    cx: Share
    cy: Share
    w: Annotated[float, msgspec.Meta(gt=0)]
    h: Annotated[float, msgspec.Meta(gt=0)]
    r: float


class Point(_Item):
    x: float
    y: float


class Segmented(_Item):
    label: str
    score: Score
    contour: list[list[Point]]

    def points(self) -> Sequence[tuple[float, float]]:
        return [(point.x, point.y) for part in self.contour for point in part]


class AnsweredPrompt(_Item):
    prompt: str
    answer: str


ITEMS: Mapping[str, type[_Item]] = {
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
    parsed_items: list[_Item] = msgspec.convert(items, list[ITEMS[task_type]])
    for item in parsed_items:
        if any(not (0 <= x <= size[0] and 0 <= y <= size[1]) for x, y in item.points()):
            raise ValueError(f"{item} lies outside the image")
    return parsed_items
