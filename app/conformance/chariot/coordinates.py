"""Check the unit, the frame and the order of coordinates."""

import math
from collections.abc import Callable, Sequence
from typing import cast

from app.conformance.chariot.image_probe import ImageCheck, ImageProbe, Item, ProbeResult, contour_points, is_number
from app.conformance.check import InconclusiveError, Level, Need, ViolationError, expect, quote
from app.conformance.client.probe import Probe
from app.conformance.sample_images import SampleImage, rotated_bar

_BOX = ("xmin", "ymin", "xmax", "ymax")
_ORIENTED_BOX = ("cx", "cy", "w", "h", "r")
_DETECTION, _ORIENTED, _SEGMENTATION = "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION"
_Outline = tuple[SampleImage, Sequence[tuple[float, float]]]
_MAX_FRACTION = 1.5
"""Coordinates that never exceed this are fractions, because an image has hundreds of pixels."""


def _expect_numbers(items: Sequence[tuple[SampleImage, Item]], names: Sequence[str]) -> None:
    present = [(image, name, item[name]) for image, item in items for name in names if name in item]
    if not present:
        raise InconclusiveError(f"No item has any of {', '.join(names)}")
    for image, name, value in present:
        expect(is_number(value), f"{name} to be a number", value, image.name)


def _complete(
    items: Sequence[tuple[SampleImage, Item]], names: Sequence[str], shape: str
) -> Sequence[tuple[SampleImage, Sequence[float]]]:
    """Return the values of `names` of each item that has all of them."""
    complete = [
        (image, [float(item[name]) for name in names]) for image, item in items if all(name in item for name in names)
    ]
    if not complete:
        raise InconclusiveError(f"No item has a complete {shape}")
    return complete


def _boxes(images: ImageProbe, probe: Probe) -> Sequence[tuple[SampleImage, Sequence[float]]]:
    """Return complete boxes: left, top, right, bottom."""
    return _complete(images.items(probe, _DETECTION), _BOX, "box")


def _expect_pixels(coordinate_lists: Sequence[Sequence[float]]) -> None:
    if max(abs(value) for values in coordinate_lists for value in values) <= _MAX_FRACTION:
        raise ViolationError(
            f"Expected pixels, got fractions: no coordinate is above {_MAX_FRACTION}, "
            f"such as {quote(coordinate_lists[0])}"
        )


def _box_extent(item: Item) -> float:
    left, top, right, bottom = (float(item.get(name, 0)) for name in _BOX)
    return abs(right - left) + abs(bottom - top)


def _contour_extent(item: Item) -> float:
    points = list(contour_points(item.get("contour")))
    if not points:
        return 0
    xs, ys = zip(*points, strict=True)
    return max(xs) - min(xs) + max(ys) - min(ys)


def _expect_scaling(images: ImageProbe, probe: Probe, task_type: str, extent: Callable[[Item], float]) -> None:
    """Compare the best item of an image with that of the image at twice its size, if the labels are equal."""
    images.items(probe, task_type)
    unscaled: list[str] = []
    for result in images.results(probe):
        large = images.probe_image(probe, result.image.doubled())
        if not result.items or not large.items or result.items[0].get("label") != large.items[0].get("label"):
            continue
        small = extent(result.items[0])
        ratio = extent(large.items[0]) / small if small else 0
        if 1.6 <= ratio <= 2.5:
            return
        if 0.8 <= ratio <= 1.25:
            unscaled.append(f"{result.image.name}: width and height together are {ratio:.2f} times as large in an image"
                          " twice as large")  # fmt: skip
    if unscaled:
        raise ViolationError(f"Expected about 2 times; {unscaled[0]}")
    raise InconclusiveError("The model finds other items in the same image at twice its size")


def _box_order(images: ImageProbe, probe: Probe) -> None:
    for image, box in _boxes(images, probe):
        if box[0] > box[2] or box[1] > box[3]:
            raise ViolationError(
                f"{image.name}: Expected xmin <= xmax and ymin <= ymax, got {quote(box)} (left, top, right, bottom)"
            )


def _box_corners(images: ImageProbe, probe: Probe) -> Sequence[_Outline]:
    return [(image, [(box[0], box[1]), (box[2], box[3])]) for image, box in _boxes(images, probe)]


def _expect_inside(outlines: Sequence[_Outline]) -> None:
    for image, x, y in ((image, x, y) for image, points in outlines for x, y in points):
        if not (-0.5 <= x <= image.width + 0.5 and -0.5 <= y <= image.height + 0.5):
            raise ViolationError(
                f"{image.name}: Expected points inside {image.width} x {image.height}, got {quote([x, y])}"
            )


def _oriented_boxes(images: ImageProbe, probe: Probe) -> Sequence[tuple[SampleImage, Sequence[float]]]:
    """Return complete oriented boxes: cx, cy, w, h, r."""
    return _complete(images.items(probe, _ORIENTED), _ORIENTED_BOX, "oriented box")


def _oriented_fractions(images: ImageProbe, probe: Probe) -> None:
    for image, (cx, cy, w, h, _) in _oriented_boxes(images, probe):
        # A rotated side can be longer than the axis that it is divided by; a centre is always inside.
        if not (-0.05 <= cx <= 1.05 and -0.05 <= cy <= 1.05) or max(abs(w), abs(h)) > 10:
            raise ViolationError(
                f"{image.name}: Expected fractions of the image, got cx, cy, w, h {quote([cx, cy, w, h])}"
            )


def _radians(images: ImageProbe, probe: Probe) -> None:
    for image, box in _oriented_boxes(images, probe):
        if abs(box[4]) > 2 * math.pi + 0.01:
            raise ViolationError(
                f"{image.name}: Expected radians, at most 2 pi, got {box[4]:g}, which looks like degrees"
            )


def _clockwise(images: ImageProbe, probe: Probe) -> None:
    _oriented_boxes(images, probe)
    errors: list[tuple[float, float]] = []
    for degrees in (30.0, 75.0):
        result = images.probe_image(probe, rotated_bar(degrees))
        angle = _long_side_angle(result)
        if angle is None:
            raise InconclusiveError(
                f"The model does not find the bar at {degrees:g} degrees, so its rotation is not known"
            )
        errors.append((_line_angle(angle, math.radians(degrees)), _line_angle(angle, -math.radians(degrees))))
    if all(wrong < 0.2 for _, wrong in errors):
        raise ViolationError("Expected bars at 30 and 75 degrees clockwise, got them counterclockwise")
    if not all(right < 0.2 for right, _ in errors):
        raise InconclusiveError("The model does not find bars at 30 and 75 degrees precisely enough")


def _long_side_angle(result: ProbeResult) -> float | None:
    """Return the angle of the long side of the best box in radians, or None if no side is clearly longer."""
    if not result.items or not all(is_number(result.items[0].get(name)) for name in _ORIENTED_BOX):
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


def _oriented_size(images: ImageProbe, probe: Probe) -> None:
    for image, box in _oriented_boxes(images, probe):
        expect(box[2] >= 0 and box[3] >= 0, "w and h of at least 0", box[2:4], image.name)


def _contours(images: ImageProbe, probe: Probe) -> None:
    for image, item in images.items(probe, _SEGMENTATION):
        contour = item.get("contour")
        if contour is None and "contour" not in item:
            continue
        expect(_is_contours(contour), "[[{x, y}, ...], ...] of numbers", contour, image.name)


def _is_contours(value: object) -> bool:
    if not isinstance(value, list):
        return False
    for contour in cast("list[object]", value):
        if not isinstance(contour, list):
            return False
        points = cast("list[object]", contour)
        if len(list(contour_points(points))) != len(points) or not all(isinstance(point, dict) for point in points):
            return False
    return True


def _outlines(images: ImageProbe, probe: Probe) -> Sequence[_Outline]:
    outlines = [
        (image, list(contour_points(item.get("contour")))) for image, item in images.items(probe, _SEGMENTATION)
    ]
    if not any(points for _, points in outlines):
        raise InconclusiveError("No contour has a point")
    return outlines


_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PARSED = (Need.STORAGE, Need.EVALUATION)
_EVALUATED = (Need.EVALUATION,)
_PAGE = 'Chariot, "Inference Protocols", Responses'
_BOXES, _ORIENTED_BOXES = f"{_PAGE}, Object Detection", f"{_PAGE}, Oriented Object Detection"
_CONTOURS = f"{_PAGE}, Image Segmentation"
_INSIDE = "Chariot 0.26.0 release notes: boxes and masks of annotations lie inside the image"

CHECKS = (
    ImageCheck("P01", _MUST, "xmin, ymin, xmax and ymax are numbers.", _BOXES,
               lambda images, probe: _expect_numbers(images.items(probe, _DETECTION), _BOX), _PARSED),
    ImageCheck("P02", _MUST, "Boxes are in pixels, not in fractions of the image.", _BOXES,
               lambda images, probe: _expect_pixels([box for _, box in _boxes(images, probe)]), _EVALUATED, ("P01",)),
    ImageCheck("P03", _MUST, "Boxes are in the frame of the sent image: they scale with it.", _BOXES,
               lambda images, probe: _expect_scaling(images, probe, _DETECTION, _box_extent), _EVALUATED,
               ("P01", "P02")),
    ImageCheck("P04", _MUST, "xmin is at most xmax, and ymin at most ymax.", _BOXES, _box_order, _EVALUATED, ("P01",)),
    ImageCheck("P05", _SHOULD, "Boxes lie inside the image.", _INSIDE,
               lambda images, probe: _expect_inside(_box_corners(images, probe)), _EVALUATED,
               ("P01", "P02", "P03", "P04")),
    ImageCheck("P06", _MUST, "cx, cy, w, h and r are numbers.", _ORIENTED_BOXES,
               lambda images, probe: _expect_numbers(images.items(probe, _ORIENTED), _ORIENTED_BOX), _PARSED),
    ImageCheck("P07", _MUST, "cx and w are fractions of the image's width, cy and h of its height.", _ORIENTED_BOXES,
               _oriented_fractions, _EVALUATED, ("P06",)),
    ImageCheck("P08", _MUST, "r is in radians.", _ORIENTED_BOXES, _radians, _EVALUATED, ("P06",)),
    ImageCheck("P09", _MUST, "r is clockwise, with y downward.", _ORIENTED_BOXES, _clockwise, _EVALUATED,
               ("P06", "P07", "P08")),
    ImageCheck("P10", _MUST, "w and h are not negative.", _ORIENTED_BOXES, _oriented_size, _EVALUATED, ("P06",)),
    ImageCheck("P11", _MUST, "contour is a list of contours, each a list of points {x, y} of numbers.", _CONTOURS,
               _contours, _PARSED),
    ImageCheck("P12", _MUST, "Contours are in pixels, not in fractions of the image.", _CONTOURS,
               lambda images, probe: _expect_pixels([point for _, outline in _outlines(images, probe)
                                                     for point in outline]), _EVALUATED, ("P11",)),
    ImageCheck("P13", _MUST, "Contours are in the frame of the sent image: they scale with it.", _CONTOURS,
               lambda images, probe: _expect_scaling(images, probe, _SEGMENTATION, _contour_extent), _EVALUATED,
               ("P11", "P12")),
    ImageCheck("P14", _SHOULD, "Contours lie inside the image.", _INSIDE,
               lambda images, probe: _expect_inside(_outlines(images, probe)), _EVALUATED, ("P11", "P12", "P13")),
)  # fmt: skip
