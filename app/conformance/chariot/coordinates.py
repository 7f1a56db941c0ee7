"""Check the unit, the frame and the order of coordinates."""

import math
from collections.abc import Callable, Sequence
from typing import cast

from app.conformance.chariot.equality import contour_points
from app.conformance.chariot.image_probe import ImageProbe, Item, ProbeResult, is_number
from app.conformance.check import Check, InconclusiveError, Level, Need, ViolationError
from app.conformance.client.probe import Probe
from app.conformance.quoting import quote
from app.conformance.sample_images import SampleImage, rotated_bar

__all__ = ("coordinate_checks",)

_BOX = ("xmin", "ymin", "xmax", "ymax")
_ORIENTED_BOX = ("cx", "cy", "w", "h", "r")
_DETECTION, _ORIENTED, _SEGMENTATION = "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION"
_PAGE = 'Chariot, "Inference Protocols", Responses'
_STORED = (Need.STORAGE, Need.EVALUATION)
_EVALUATED = (Need.EVALUATION,)
_INSIDE = "Chariot 0.26.0 release notes: boxes and masks of annotations lie inside the image"
_MAX_FRACTION = 1.5
"""Coordinates that never exceed this are fractions, because an image has hundreds of pixels."""


def coordinate_checks(prefix: str, image_probe: ImageProbe) -> Sequence[Check]:
    """Return the checks, with ids that start with `prefix`."""

    def check_id(index: int) -> str:
        return f"{prefix}-P{index:02}"

    def check(
        index: int,
        level: Level,
        source: str,
        sentence: str,
        run: Callable[[ImageProbe, Probe], None],
        needed_for: Sequence[Need] = _EVALUATED,
        requires: Sequence[int] = (),
    ) -> Check:
        def run_check(probe: Probe) -> None:
            run(image_probe, probe)

        return Check(
            id=check_id(index),
            level=level,
            source=source,
            sentence=sentence,
            run=run_check,
            needed_for=needed_for,
            requires=[check_id(required) for required in requires],
        )

    must, should = Level.MUST, Level.SHOULD
    detection, oriented, segmentation = (
        f"{_PAGE}, Object Detection",
        f"{_PAGE}, Oriented Object Detection",
        f"{_PAGE}, Image Segmentation",
    )
    return (
        check(1, must, detection, "xmin, ymin, xmax and ymax are numbers.", _box_numbers, _STORED),
        check(2, must, detection, "Boxes are in pixels, not in fractions of the image.", _box_pixels, requires=(1,)),
        check(3, must, detection, "Boxes are in the frame of the sent image: they scale with it.", _box_scales,
              requires=(1, 2)),
        check(4, must, detection, "xmin is at most xmax, and ymin at most ymax.", _box_order, requires=(1,)),
        check(5, should, _INSIDE, "Boxes lie inside the image.", _box_inside, requires=(1, 2, 3, 4)),
        check(6, must, oriented, "cx, cy, w, h and r are numbers.", _oriented_numbers, _STORED),
        check(7, must, oriented, "cx and w are fractions of the image's width, cy and h of its height.",
              _oriented_fractions, requires=(6,)),
        check(8, must, oriented, "r is in radians.", _radians, requires=(6,)),
        check(9, must, oriented, "r is clockwise, with y downward.", _clockwise, requires=(6, 7, 8)),
        check(10, must, oriented, "w and h are not negative.", _oriented_size, requires=(6,)),
        check(11, must, segmentation, "contour is a list of contours, each a list of points {x, y} of numbers.",
              _contours, _STORED),
        check(12, must, segmentation, "Contours are in pixels, not in fractions of the image.", _contour_pixels,
              requires=(11,)),
        check(13, must, segmentation, "Contours are in the frame of the sent image: they scale with it.",
              _contour_scales, requires=(11, 12)),
        check(14, should, _INSIDE, "Contours lie inside the image.", _contour_inside, requires=(11, 12, 13)),
    )  # fmt: skip


def _box_numbers(image_probe: ImageProbe, probe: Probe) -> None:
    _expect_numbers(image_probe.items(probe, _DETECTION), _BOX)


def _oriented_numbers(image_probe: ImageProbe, probe: Probe) -> None:
    _expect_numbers(image_probe.items(probe, _ORIENTED), _ORIENTED_BOX)


def _expect_numbers(items: Sequence[tuple[SampleImage, Item]], names: Sequence[str]) -> None:
    present = [(image, name, item[name]) for image, item in items for name in names if name in item]
    if not present:
        raise InconclusiveError(f"No item has any of {', '.join(names)}")
    for image, name, value in present:
        if not is_number(value):
            raise ViolationError(f"{image.name}: Expected {name} to be a number, got {quote(value)}")


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


def _boxes(image_probe: ImageProbe, probe: Probe) -> Sequence[tuple[SampleImage, Sequence[float]]]:
    """Return complete boxes: left, top, right, bottom."""
    return _complete(image_probe.items(probe, _DETECTION), _BOX, "box")


def _box_pixels(image_probe: ImageProbe, probe: Probe) -> None:
    _expect_pixels([box for _, box in _boxes(image_probe, probe)])


def _expect_pixels(coordinate_lists: Sequence[Sequence[float]]) -> None:
    if max(abs(value) for values in coordinate_lists for value in values) <= _MAX_FRACTION:
        raise ViolationError(
            f"Expected pixels, got fractions: no coordinate is above {_MAX_FRACTION}, "
            f"such as {quote(coordinate_lists[0])}"
        )


def _box_scales(image_probe: ImageProbe, probe: Probe) -> None:
    _expect_scaling(image_probe, probe, _DETECTION, _box_extent)


def _contour_scales(image_probe: ImageProbe, probe: Probe) -> None:
    _expect_scaling(image_probe, probe, _SEGMENTATION, lambda item: _extent(list(contour_points(item.get("contour")))))


def _box_extent(item: Item) -> float:
    left, top, right, bottom = (float(item.get(name, 0)) for name in _BOX)
    return abs(right - left) + abs(bottom - top)


def _extent(points: Sequence[tuple[float, float]]) -> float:
    if not points:
        return 0
    xs, ys = zip(*points, strict=True)
    return max(xs) - min(xs) + max(ys) - min(ys)


def _expect_scaling(image_probe: ImageProbe, probe: Probe, task_type: str, extent: Callable[[Item], float]) -> None:
    """Compare the best item of an image with that of the image at twice its size, if the labels are equal."""
    image_probe.items(probe, task_type)
    unscaled: list[str] = []
    for result in image_probe.results(probe):
        large = image_probe.probe_image(probe, result.image.doubled())
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


def _box_order(image_probe: ImageProbe, probe: Probe) -> None:
    for image, box in _boxes(image_probe, probe):
        if box[0] > box[2] or box[1] > box[3]:
            raise ViolationError(
                f"{image.name}: Expected xmin <= xmax and ymin <= ymax, got {quote(box)} (left, top, right, bottom)"
            )


def _box_inside(image_probe: ImageProbe, probe: Probe) -> None:
    for image, box in _boxes(image_probe, probe):
        _expect_inside(image, [(box[0], box[1]), (box[2], box[3])])


def _expect_inside(image: SampleImage, points: Sequence[tuple[float, float]]) -> None:
    for x, y in points:
        if not (-0.5 <= x <= image.width + 0.5 and -0.5 <= y <= image.height + 0.5):
            raise ViolationError(
                f"{image.name}: Expected points inside {image.width} x {image.height}, got {quote([x, y])}"
            )


def _oriented_boxes(image_probe: ImageProbe, probe: Probe) -> Sequence[tuple[SampleImage, Sequence[float]]]:
    """Return complete oriented boxes: cx, cy, w, h, r."""
    return _complete(image_probe.items(probe, _ORIENTED), _ORIENTED_BOX, "oriented box")


def _oriented_fractions(image_probe: ImageProbe, probe: Probe) -> None:
    for image, (cx, cy, w, h, _) in _oriented_boxes(image_probe, probe):
        # A rotated side can be longer than the axis that it is divided by; a centre is always inside.
        if not (-0.05 <= cx <= 1.05 and -0.05 <= cy <= 1.05) or max(abs(w), abs(h)) > 10:
            raise ViolationError(
                f"{image.name}: Expected fractions of the image, got cx, cy, w, h {quote([cx, cy, w, h])}"
            )


def _radians(image_probe: ImageProbe, probe: Probe) -> None:
    for image, box in _oriented_boxes(image_probe, probe):
        if abs(box[4]) > 2 * math.pi + 0.01:
            raise ViolationError(
                f"{image.name}: Expected radians, at most 2 pi, got {box[4]:g}, which looks like degrees"
            )


def _clockwise(image_probe: ImageProbe, probe: Probe) -> None:
    _oriented_boxes(image_probe, probe)
    errors: list[tuple[float, float]] = []
    for degrees in (30.0, 75.0):
        result = image_probe.probe_image(probe, rotated_bar(degrees))
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


def _oriented_size(image_probe: ImageProbe, probe: Probe) -> None:
    for image, box in _oriented_boxes(image_probe, probe):
        if box[2] < 0 or box[3] < 0:
            raise ViolationError(f"{image.name}: Expected w and h of at least 0, got {quote(box[2:4])}")


def _contours(image_probe: ImageProbe, probe: Probe) -> None:
    for image, item in image_probe.items(probe, _SEGMENTATION):
        contour = item.get("contour")
        if contour is None and "contour" not in item:
            continue
        if not _is_contours(contour):
            raise ViolationError(f"{image.name}: Expected [[{{x, y}}, ...], ...] of numbers, got {quote(contour)}")


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


def _outlines(image_probe: ImageProbe, probe: Probe) -> Sequence[tuple[SampleImage, Sequence[tuple[float, float]]]]:
    outlines = [
        (image, list(contour_points(item.get("contour")))) for image, item in image_probe.items(probe, _SEGMENTATION)
    ]
    if not any(points for _, points in outlines):
        raise InconclusiveError("No contour has a point")
    return outlines


def _contour_pixels(image_probe: ImageProbe, probe: Probe) -> None:
    _expect_pixels([point for _, points in _outlines(image_probe, probe) for point in points])


def _contour_inside(image_probe: ImageProbe, probe: Probe) -> None:
    for image, points in _outlines(image_probe, probe):
        _expect_inside(image, points)
