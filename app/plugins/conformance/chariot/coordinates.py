"""Check the unit, the frame and the order of coordinates."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec

from app.plugins.conformance.chariot.image_probe import (
    Item,
    ProbeResult,
    contour_points,
    expect_fields,
    extent_of,
    is_number,
    items_of_type,
    probe_image,
    results_of,
)
from app.plugins.conformance.chariot.movement import expect_movement
from app.plugins.conformance.check import EVALUATED, MUST, PARSED, SHOULD, Check, expect
from app.plugins.conformance.exchange import InconclusiveError, ViolationError, quote
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import SampleImage, rotated_bar
from app.plugins.conformance.tensors import expect_form

_DETECTION, _ORIENTED, _SEGMENTATION = "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION"
_BOX: Mapping[str, Sequence[str]] = {
    _DETECTION: ("xmin", "ymin", "xmax", "ymax"),
    _ORIENTED: ("cx", "cy", "w", "h", "r"),
}
"""The fields of a box, by task type."""
_Outline = tuple[SampleImage, Sequence[tuple[float, float]]]
_Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
_MAX_FRACTION = 1.5
"""Coordinates that never exceed this are fractions, because an image has hundreds of pixels."""


class _Point(msgspec.Struct):
    x: _Number
    y: _Number


def _expect_numbers(probe: Probe, task_type: str) -> None:
    expect_fields(probe, is_number, "a number", _BOX[task_type], task_type)


def _boxes(probe: Probe, task_type: str = _DETECTION) -> Sequence[tuple[SampleImage, Sequence[float]]]:
    """Return the boxes of items that have all fields of `_BOX`, in their order."""
    names, items = _BOX[task_type], items_of_type(probe, task_type)
    boxes = [(image, [float(item[name]) for name in names]) for image, item in items if item.keys() >= set(names)]
    if not boxes:
        raise InconclusiveError(f"No item has {', '.join(names)}")
    return boxes


def _expect_boxes(probe: Probe, task_type: str, holds: Callable[[Sequence[float]], bool], expected: str) -> None:
    """Raise a `ViolationError` unless `holds` is true for each box."""
    for image, box in _boxes(probe, task_type):
        expect(holds(box), expected, box, image.name)


def _expect_pixels(coordinate_lists: Sequence[Sequence[float]]) -> None:
    if max(abs(value) for values in coordinate_lists for value in values) <= _MAX_FRACTION:
        example = f"no coordinate is above {_MAX_FRACTION}, such as {quote(coordinate_lists[0])}"
        raise ViolationError(f"Expected pixels, got fractions: {example}")


def _width_and_height(item: Item) -> float:
    """Return the sum of an item's width and height; 0 if it has none."""
    extent = extent_of(item)
    return abs(extent[2] - extent[0]) + abs(extent[3] - extent[1]) if len(extent) == 4 else 0


def _expect_scaling(probe: Probe, task_type: str) -> None:
    """Compare the best items of an image and of the same image at twice its size, if the labels are equal."""
    items_of_type(probe, task_type)
    unscaled: list[str] = []
    for result in results_of(probe):
        large = probe_image(probe, result.image.doubled())
        if not result.items or not large.items or result.items[0].get("label") != large.items[0].get("label"):
            continue
        small = _width_and_height(result.items[0])
        ratio = _width_and_height(large.items[0]) / small if small else 0
        if 1.6 <= ratio <= 2.5:
            return
        if 0.8 <= ratio <= 1.25:
            unscaled.append(f"{result.image.name}: width and height together are {ratio:.2f} times as large in an image"
                          " twice as large")  # fmt: skip
    if unscaled:
        raise ViolationError(f"Expected about 2 times; {unscaled[0]}")
    raise InconclusiveError("The model finds other items in the same image at twice its size")


def _expect_inside(outlines: Sequence[_Outline]) -> None:
    for image, x, y in ((image, x, y) for image, points in outlines for x, y in points):
        is_inside = -0.5 <= x <= image.width + 0.5 and -0.5 <= y <= image.height + 0.5
        expect(is_inside, f"points inside {image.width} x {image.height}", [x, y], image.name)


def _is_fraction(box: Sequence[float]) -> bool:
    # A rotated side can be longer than the axis that it is divided by; a centre is always inside.
    cx, cy, w, h, _ = box
    return -0.05 <= cx <= 1.05 and -0.05 <= cy <= 1.05 and max(abs(w), abs(h)) <= 10


def _clockwise(probe: Probe) -> None:
    _boxes(probe, _ORIENTED)
    errors: list[tuple[float, float]] = []
    for degrees in (30.0, 75.0):
        angle = _long_side_angle(probe_image(probe, rotated_bar(degrees)))
        if angle is None:
            reason = f"The model does not find the bar at {degrees:g} degrees, so its rotation is not known"
            raise InconclusiveError(reason)
        errors.append((_line_angle(angle, math.radians(degrees)), _line_angle(angle, -math.radians(degrees))))
    if all(wrong < 0.2 for _, wrong in errors):
        raise ViolationError("Expected bars at 30 and 75 degrees clockwise, got them counterclockwise")
    if not all(right < 0.2 for right, _ in errors):
        raise InconclusiveError("The model does not find bars at 30 and 75 degrees precisely enough")


def _long_side_angle(result: ProbeResult) -> float | None:
    """Return the angle of the long side of the best box in radians, or None if no side is clearly longer."""
    if not result.items or not all(is_number(result.items[0].get(name)) for name in _BOX[_ORIENTED]):
        return None
    item = result.items[0]
    width, height = item["w"] * result.image.width, item["h"] * result.image.height
    if max(width, height) < 1.3 * min(width, height):
        return None
    return item["r"] if width >= height else item["r"] + math.pi / 2


def _line_angle(angle: float, other: float) -> float:
    """Return the angle between two undirected lines: 0 to pi / 2."""
    difference = (angle - other) % math.pi
    return min(difference, math.pi - difference)


def _contours(probe: Probe) -> None:
    for image, item in items_of_type(probe, _SEGMENTATION):
        if "contour" in item:
            expect_form(item["contour"], list[list[_Point]], "[[{x, y}, ...], ...] of numbers", image.name)


def _outlines(probe: Probe) -> Sequence[_Outline]:
    items = items_of_type(probe, _SEGMENTATION)
    outlines = [(image, list(contour_points(item.get("contour")))) for image, item in items]
    if not any(points for _, points in outlines):
        raise InconclusiveError("No contour has a point")
    return outlines


_PAGE = 'Chariot, "Inference Protocols", Responses'
_BOXES, _ORIENTED_BOXES = f"{_PAGE}, Object Detection", f"{_PAGE}, Oriented Object Detection"
_CONTOURS = f"{_PAGE}, Image Segmentation"
_INSIDE = "Chariot 0.26.0 release notes: boxes and masks of annotations lie inside the image"

CHECKS = (
    Check("P01", MUST, "xmin, ymin, xmax and ymax are numbers.", _BOXES,
          lambda probe: _expect_numbers(probe, _DETECTION), PARSED),
    Check("P02", MUST, "Boxes are in pixels, not in fractions of the image.", _BOXES,
          lambda probe: _expect_pixels([box for _, box in _boxes(probe)]), EVALUATED, ("P01",)),
    Check("P03", MUST, "Boxes are in the frame of the sent image: they scale with it.", _BOXES,
          lambda probe: _expect_scaling(probe, _DETECTION), EVALUATED, ("P02",)),
    Check("P04", MUST, "xmin is at most xmax, and ymin at most ymax.", _BOXES, lambda probe: _expect_boxes(
              probe, _DETECTION, lambda box: box[0] <= box[2] and box[1] <= box[3],
              "xmin <= xmax and ymin <= ymax"), EVALUATED, ("P01",)),
    Check("P15", MUST, "Boxes move with the image: x is counted from the left, y from the top.", _BOXES,
          lambda probe: expect_movement(probe, _DETECTION), EVALUATED, ("P03", "P04")),
    Check("P05", SHOULD, "Boxes lie inside the image.", _INSIDE, lambda probe: _expect_inside(
              [(image, [(box[0], box[1]), (box[2], box[3])]) for image, box in _boxes(probe)]),
          EVALUATED, ("P15",)),
    Check("P06", MUST, "cx, cy, w, h and r are numbers.", _ORIENTED_BOXES,
          lambda probe: _expect_numbers(probe, _ORIENTED), PARSED),
    Check("P07", MUST, "cx and w are fractions of the image's width, cy and h of its height.", _ORIENTED_BOXES,
          lambda probe: _expect_boxes(probe, _ORIENTED, _is_fraction, "fractions of the image"), EVALUATED, ("P06",)),
    Check("P16", MUST, "cx and cy move with the image: cx is counted from the left, cy from the top.", _ORIENTED_BOXES,
          lambda probe: expect_movement(probe, _ORIENTED), EVALUATED, ("P07",)),
    Check("P08", MUST, "r is in radians.", _ORIENTED_BOXES, lambda probe: _expect_boxes(
              probe, _ORIENTED, lambda box: abs(box[4]) <= 2 * math.pi + 0.01, "radians, at most 2 pi"),
          EVALUATED, ("P06",)),
    Check("P09", MUST, "r is clockwise, with y downward.", _ORIENTED_BOXES, _clockwise, EVALUATED, ("P07", "P08")),
    Check("P10", MUST, "w and h are not negative.", _ORIENTED_BOXES, lambda probe: _expect_boxes(
              probe, _ORIENTED, lambda box: min(box[2:4]) >= 0, "w and h of at least 0"), EVALUATED, ("P06",)),
    Check("P11", MUST, "contour is a list of contours, each a list of points {x, y} of numbers.", _CONTOURS,
          _contours, PARSED),
    Check("P12", MUST, "Contours are in pixels, not in fractions of the image.", _CONTOURS,
          lambda probe: _expect_pixels([point for _, outline in _outlines(probe) for point in outline]), EVALUATED,
          ("P11",)),
    Check("P13", MUST, "Contours are in the frame of the sent image: they scale with it.", _CONTOURS,
          lambda probe: _expect_scaling(probe, _SEGMENTATION), EVALUATED, ("P12",)),
    Check("P17", MUST, "Contours move with the image: x is counted from the left, y from the top.", _CONTOURS,
          lambda probe: expect_movement(probe, _SEGMENTATION), EVALUATED, ("P13",)),
    Check("P14", SHOULD, "Contours lie inside the image.", _INSIDE, lambda probe: _expect_inside(_outlines(probe)),
          EVALUATED, ("P17",)),
)  # fmt: skip
