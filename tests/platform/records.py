"""How Chariot reads the items of each task type: exactly the documented fields, within the bounds of the image."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Size = tuple[int, int]
"""Width and height in pixels."""


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: float
    y: float


LABELLED: Mapping[str, Any] = {"label": str, "score": Share}
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "IMAGE_CLASSIFICATION": LABELLED,
    # Corners in pixels, y down.
    "OBJECT_DETECTION": {**LABELLED, "xmin": float, "ymin": float, "xmax": float, "ymax": float},
    # Shares of the image's width (cx, w) and height (cy, h); r in radians, clockwise.
    "ORIENTED_OBJECT_DETECTION": {**LABELLED, "cx": Share, "cy": Share, "w": Positive, "h": Positive, "r": float},
    "IMAGE_SEGMENTATION": {**LABELLED, "contour": list[list[Point]]},
    "IMAGE_TEXT_TO_TEXT": {"prompt": str, "answer": str},
}
ITEMS = {
    name: msgspec.defstruct(name, [*fields.items()], forbid_unknown_fields=True) for name, fields in FIELDS.items()
}


def parse_items(task_type: str, items: object, size: Size) -> Sequence[Any]:
    """Parse the items of one image.

    Raise ValueError if a field is missing, unknown or of another type, or if an item lies outside the image.
    """
    parsed_items: list[Any] = msgspec.convert(items, list[ITEMS[task_type]])
    for item in parsed_items:
        if any(not (0 <= x <= size[0] and 0 <= y <= size[1]) for x, y in _points(item)):
            raise ValueError(f"{item} lies outside the image")
    return parsed_items


def _points(item: Any) -> Iterator[tuple[float, float]]:
    """Yield the points in pixels that must be inside the image."""
    if hasattr(item, "xmin"):
        yield from ((item.xmin, item.ymin), (item.xmax, item.ymax))
    for part in getattr(item, "contour", ()):
        yield from ((point.x, point.y) for point in part)
