"""Check the unit, the frame and the order of coordinates."""

import math
from collections.abc import Callable, Sequence
from typing import cast

from app.conformance.chariot.comparing import coordinates
from app.conformance.chariot.looking import Item, Look, Looking, is_number
from app.conformance.clause import Clause, FaultError, Level, Need, UntestedError
from app.conformance.pictures import Picture, turned_bar
from app.conformance.probe import Probe
from app.conformance.quoting import brief

__all__ = ("place_clauses",)

_BOX = ("xmin", "ymin", "xmax", "ymax")
_ORIENTED_BOX = ("cx", "cy", "w", "h", "r")
_DETECTION, _ORIENTED, _SEGMENTATION = "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION"
_PAGE = 'Chariot, "Inference Protocols", Responses'
_STORED = (Need.STORAGE, Need.EVALUATION)
_EVALUATED = (Need.EVALUATION,)
_INSIDE = "Chariot 0.26.0 release notes: boxes and masks of annotations lie inside the image"
_MAX_FRACTION = 1.5
"""Coordinates that never exceed this are fractions, because an image has hundreds of pixels."""


def place_clauses(prefix: str, looking: Looking) -> Sequence[Clause]:
    """Return the clauses, with ids that start with `prefix`."""

    def number(index: int) -> str:
        return f"{prefix}-P{index:02}"

    def clause(
        index: int,
        level: Level,
        source: str,
        sentence: str,
        check: Callable[[Looking, Probe], None],
        needed_for: Sequence[Need] = _EVALUATED,
        requires: Sequence[int] = (),
    ) -> Clause:
        def bound(probe: Probe) -> None:
            check(looking, probe)

        return Clause(
            id=number(index),
            level=level,
            source=source,
            sentence=sentence,
            check=bound,
            needed_for=needed_for,
            requires=[number(required) for required in requires],
        )

    must, should = Level.MUST, Level.SHOULD
    box, oriented, outline = (
        f"{_PAGE}, Object Detection",
        f"{_PAGE}, Oriented Object Detection",
        f"{_PAGE}, Image Segmentation",
    )
    return (
        clause(1, must, box, "xmin, ymin, xmax and ymax are numbers.", _box_numbers, _STORED),
        clause(2, must, box, "Boxes are in pixels, not in fractions of the image.", _box_pixels, requires=(1,)),
        clause(3, must, box, "Boxes are in the frame of the sent image: they scale with it.", _box_scales,
               requires=(1, 2)),
        clause(4, must, box, "xmin is at most xmax, and ymin at most ymax.", _box_order, requires=(1,)),
        clause(5, should, _INSIDE, "Boxes lie inside the image.", _box_inside, requires=(1, 2, 3, 4)),
        clause(6, must, oriented, "cx, cy, w, h and r are numbers.", _oriented_numbers, _STORED),
        clause(7, must, oriented, "cx and w are fractions of the image's width, cy and h of its height.",
               _oriented_fractions, requires=(6,)),
        clause(8, must, oriented, "r is in radians.", _radians, requires=(6,)),
        clause(9, must, oriented, "r is clockwise, with y downward.", _clockwise, requires=(6, 7, 8)),
        clause(10, must, oriented, "w and h are not negative.", _oriented_size, requires=(6,)),
        clause(11, must, outline, "contour is a list of contours, each a list of points {x, y} of numbers.", _contours,
               _STORED),
        clause(12, must, outline, "Contours are in pixels, not in fractions of the image.", _contour_pixels,
               requires=(11,)),
        clause(13, must, outline, "Contours are in the frame of the sent image: they scale with it.",
               _contour_scales, requires=(11, 12)),
        clause(14, should, _INSIDE, "Contours lie inside the image.", _contour_inside, requires=(11, 12, 13)),
    )  # fmt: skip


def _box_numbers(looking: Looking, probe: Probe) -> None:
    _numbers(looking.items(probe, _DETECTION), _BOX)


def _oriented_numbers(looking: Looking, probe: Probe) -> None:
    _numbers(looking.items(probe, _ORIENTED), _ORIENTED_BOX)


def _numbers(items: Sequence[tuple[Picture, Item]], names: Sequence[str]) -> None:
    present = [(picture, name, item[name]) for picture, item in items for name in names if name in item]
    if not present:
        raise UntestedError(f"No item has any of {', '.join(names)}")
    for picture, name, value in present:
        if not is_number(value):
            raise FaultError(f"{picture.name}: Expected {name} to be a number, got {brief(value)}")


def _boxes(looking: Looking, probe: Probe) -> Sequence[tuple[Picture, Sequence[float]]]:
    """Return complete boxes: left, top, right, bottom."""
    found = [
        (picture, [float(item[name]) for name in _BOX])
        for picture, item in looking.items(probe, _DETECTION)
        if all(name in item for name in _BOX)
    ]
    if not found:
        raise UntestedError("No item has a complete box")
    return found


def _box_pixels(looking: Looking, probe: Probe) -> None:
    _pixels([box for _, box in _boxes(looking, probe)])


def _pixels(found: Sequence[Sequence[float]]) -> None:
    if max(abs(value) for values in found for value in values) <= _MAX_FRACTION:
        raise FaultError(
            f"Expected pixels, got fractions: no coordinate is above {_MAX_FRACTION}, such as {brief(found[0])}"
        )


def _box_scales(looking: Looking, probe: Probe) -> None:
    _scales(looking, probe, _DETECTION, _box_extent)


def _contour_scales(looking: Looking, probe: Probe) -> None:
    _scales(looking, probe, _SEGMENTATION, lambda item: _extent(list(coordinates(item.get("contour")))))


def _box_extent(item: Item) -> float:
    left, top, right, bottom = (float(item.get(name, 0)) for name in _BOX)
    return abs(right - left) + abs(bottom - top)


def _extent(points: Sequence[tuple[float, float]]) -> float:
    if not points:
        return 0
    xs, ys = zip(*points, strict=True)
    return max(xs) - min(xs) + max(ys) - min(ys)


def _scales(looking: Looking, probe: Probe, task_type: str, extent: Callable[[Item], float]) -> None:
    """Compare the best item of an image with that of the image at twice its size, if the labels are equal."""
    looking.items(probe, task_type)
    stayed: list[str] = []
    for look in looking.looks(probe):
        large = looking.look(probe, look.picture.twice())
        if not look.items or not large.items or look.items[0].get("label") != large.items[0].get("label"):
            continue
        small = extent(look.items[0])
        ratio = extent(large.items[0]) / small if small else 0
        if 1.6 <= ratio <= 2.5:
            return
        if 0.8 <= ratio <= 1.25:
            stayed.append(f"{look.picture.name}: width and height together are {ratio:.2f} times as large in an image"
                          " twice as large")  # fmt: skip
    if stayed:
        raise FaultError(f"Expected about 2 times; {stayed[0]}")
    raise UntestedError("The model finds other items in the same image at twice its size")


def _box_order(looking: Looking, probe: Probe) -> None:
    for picture, box in _boxes(looking, probe):
        if box[0] > box[2] or box[1] > box[3]:
            raise FaultError(
                f"{picture.name}: Expected xmin <= xmax and ymin <= ymax, got {brief(box)} (left, top, right, bottom)"
            )


def _box_inside(looking: Looking, probe: Probe) -> None:
    for picture, box in _boxes(looking, probe):
        _inside(picture, [(box[0], box[1]), (box[2], box[3])])


def _inside(picture: Picture, points: Sequence[tuple[float, float]]) -> None:
    for x, y in points:
        if not (-0.5 <= x <= picture.width + 0.5 and -0.5 <= y <= picture.height + 0.5):
            raise FaultError(
                f"{picture.name}: Expected points inside {picture.width} x {picture.height}, got {brief([x, y])}"
            )


def _oriented_boxes(looking: Looking, probe: Probe) -> Sequence[tuple[Picture, Sequence[float]]]:
    """Return complete oriented boxes: cx, cy, w, h, r."""
    found = [
        (picture, [float(item[name]) for name in _ORIENTED_BOX])
        for picture, item in looking.items(probe, _ORIENTED)
        if all(name in item for name in _ORIENTED_BOX)
    ]
    if not found:
        raise UntestedError("No item has a complete oriented box")
    return found


def _oriented_fractions(looking: Looking, probe: Probe) -> None:
    for picture, (cx, cy, w, h, _) in _oriented_boxes(looking, probe):
        # A rotated side can be longer than the axis that it is divided by; a centre is always inside.
        if not (-0.05 <= cx <= 1.05 and -0.05 <= cy <= 1.05) or max(abs(w), abs(h)) > 10:
            raise FaultError(
                f"{picture.name}: Expected fractions of the image, got cx, cy, w, h {brief([cx, cy, w, h])}"
            )


def _radians(looking: Looking, probe: Probe) -> None:
    for picture, box in _oriented_boxes(looking, probe):
        if abs(box[4]) > 2 * math.pi + 0.01:
            raise FaultError(
                f"{picture.name}: Expected radians, at most 2 pi, got {box[4]:g}, which looks like degrees"
            )


def _clockwise(looking: Looking, probe: Probe) -> None:
    _oriented_boxes(looking, probe)
    errors: list[tuple[float, float]] = []
    for degrees in (30.0, 75.0):
        look = looking.look(probe, turned_bar(degrees))
        angle = _long_side(look)
        if angle is None:
            raise UntestedError(f"The model does not find the bar at {degrees:g} degrees, so its rotation is not known")
        errors.append((_apart(angle, math.radians(degrees)), _apart(angle, -math.radians(degrees))))
    if all(wrong < 0.2 for _, wrong in errors):
        raise FaultError("Expected bars at 30 and 75 degrees clockwise, got them counterclockwise")
    if not all(right < 0.2 for right, _ in errors):
        raise UntestedError("The model does not find bars at 30 and 75 degrees precisely enough")


def _long_side(look: Look) -> float | None:
    """Return the angle of the long side of the best box in radians, or None if no side is clearly longer."""
    if not look.items or not all(is_number(look.items[0].get(name)) for name in _ORIENTED_BOX):
        return None
    item = look.items[0]
    width, height = item["w"] * look.picture.width, item["h"] * look.picture.height
    if max(width, height) < 1.3 * min(width, height):
        return None
    return item["r"] if width >= height else item["r"] + math.pi / 2


def _apart(angle: float, other: float) -> float:
    """Return the angle between two undirected lines: 0 to pi / 2."""
    apart = (angle - other) % math.pi
    return min(apart, math.pi - apart)


def _oriented_size(looking: Looking, probe: Probe) -> None:
    for picture, box in _oriented_boxes(looking, probe):
        if box[2] < 0 or box[3] < 0:
            raise FaultError(f"{picture.name}: Expected w and h of at least 0, got {brief(box[2:4])}")


def _contours(looking: Looking, probe: Probe) -> None:
    for picture, item in looking.items(probe, _SEGMENTATION):
        contour = item.get("contour")
        if contour is None and "contour" not in item:
            continue
        if not _is_contours(contour):
            raise FaultError(f"{picture.name}: Expected [[{{x, y}}, ...], ...] of numbers, got {brief(contour)}")


def _is_contours(value: object) -> bool:
    if not isinstance(value, list):
        return False
    for contour in cast("list[object]", value):
        if not isinstance(contour, list):
            return False
        points = cast("list[object]", contour)
        if len(list(coordinates(points))) != len(points) or not all(isinstance(point, dict) for point in points):
            return False
    return True


def _outlines(looking: Looking, probe: Probe) -> Sequence[tuple[Picture, Sequence[tuple[float, float]]]]:
    found = [(p, list(coordinates(item.get("contour")))) for p, item in looking.items(probe, _SEGMENTATION)]
    if not any(points for _, points in found):
        raise UntestedError("No contour has a point")
    return found


def _contour_pixels(looking: Looking, probe: Probe) -> None:
    _pixels([point for _, points in _outlines(looking, probe) for point in points])


def _contour_inside(looking: Looking, probe: Probe) -> None:
    for picture, points in _outlines(looking, probe):
        _inside(picture, points)
