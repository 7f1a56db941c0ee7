"""Places in an image as an answer prints them."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

Ring = Sequence[tuple[float, float]]
"""Points (x, y): two corners of a box, one point, or the corners of a polygon."""


Places = Iterator["Place | None"]
"""The places that an answer prints; None for each that cannot be read."""


class Place(msgspec.Struct, frozen=True):
    """One place in an image, in the units of its form: x to the right, y down.

    A box has one ring, with its left top and its right bottom corner. A polygon may have several rings, whose pixels
    are inside an odd number of them.
    """

    label: str
    kind: Literal["box", "point", "polygon"]
    rings: Sequence[Ring]


def box(label: str, numbers: Sequence[float]) -> Place:
    """Return the box with the numbers left, top, right and bottom."""
    left, top, right, bottom = numbers
    return Place(label, "box", [[(left, top), (right, bottom)]])


def pairs(numbers: Sequence[float]) -> Ring:
    """Return the points with the coordinates x, y, x, y, ...; a last x without a y is left out."""
    return list(zip(numbers[::2], numbers[1::2], strict=False))
