"""Parse the records of a model's answer for one image, in the form that every protocol uses."""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from app.evaluation.dataset import Item, Ring
from app.evaluation.datasets.files import listed
from tasks.exchange.error import brief
from tasks.task import TaskType

__all__ = ("Answered", "Found", "read_records", "task_of")

_SCORE_TOLERANCE = 1e-5
"""Tolerance of scores beyond 0..1, for rounding in half precision."""
_MAX_COORDINATE = 1e6
"""Maximum coordinate in pixels, beyond any image; areas of larger ones would overflow."""
_FIELDS = {
    TaskType.IMAGE_SEGMENTATION: "contour",
    TaskType.OBJECT_DETECTION: "xmin",
    TaskType.ORIENTED_OBJECT_DETECTION: "cx",
    TaskType.IMAGE_TEXT_TO_TEXT: "answer",
    TaskType.IMAGE_CLASSIFICATION: "score",
}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction.

    Attributes:
        label: its class.
        score: 0..1.
        box: left, top, right, bottom of a detection, in pixels.
        corners: four corners of an oriented box, in pixels.
        rings: the outline of a segment in pixels, by the even-odd rule.
    """

    label: str
    score: float
    box: tuple[float, float, float, float] | None = None
    corners: Ring | None = None
    rings: tuple[Ring, ...] | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An item and its predictions.

    Attributes:
        item: the item of the dataset.
        found: the predicted classes or objects.
        answer: the answer to the item's question.
    """

    item: Item
    found: tuple[Found, ...] = ()
    answer: str = ""


def task_of(records: Sequence[Mapping[str, object]]) -> TaskType | None:
    """Infer the task from the fields of the records; None without known fields."""
    for record in records:
        for task, field in _FIELDS.items():
            if field in record:
                return task
    return None


def read_records(records: Sequence[Mapping[str, object]], item: Item, task: TaskType) -> Answered:
    """Parse the records of `task` for `item`.

    Oriented boxes are scaled to pixels before rotation, because the two operations do not commute.

    Raises:
        ValueError: when the records are of another task, or not finite.
    """
    if task is TaskType.IMAGE_TEXT_TO_TEXT:
        answers = [record.get("answer") for record in records]
        if len(answers) != 1 or not isinstance(answers[0], str):
            raise ValueError(f"Expected one answer to the question, got {brief(answers)}")
        return Answered(item=item, answer=answers[0])
    return Answered(item=item, found=tuple(_found(record, item, task) for record in records))


def _found(record: Mapping[str, object], item: Item, task: TaskType) -> Found:
    label, score = record.get("label"), _number(record, "score")
    if not isinstance(label, str):
        raise ValueError(f"label: Expected a text, got {brief(label)}")
    if not -_SCORE_TOLERANCE <= score <= 1 + _SCORE_TOLERANCE:
        raise ValueError(f"score: Expected a number within 0..1, got {score}")
    score = min(max(score, 0.0), 1.0)
    match task:
        case TaskType.OBJECT_DETECTION:
            left, top, right, bottom = (_number(record, name) for name in ("xmin", "ymin", "xmax", "ymax"))
            return Found(label=label, score=score, box=(left, top, right, bottom))
        case TaskType.ORIENTED_OBJECT_DETECTION:
            return Found(label=label, score=score, corners=_corners(record, item.width, item.height))
        case TaskType.IMAGE_SEGMENTATION:
            return Found(label=label, score=score, rings=_rings(record.get("contour")))
        case _:
            return Found(label=label, score=score)


def _corners(record: Mapping[str, object], width: int, height: int) -> Ring:
    cx, cy = _number(record, "cx") * width, _number(record, "cy") * height
    half_w, half_h = _number(record, "w") * width / 2, _number(record, "h") * height / 2
    cos, sin = math.cos(_number(record, "r")), math.sin(_number(record, "r"))
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    # y points down, so that this rotates clockwise.
    return tuple((cx + a * half_w * cos - b * half_h * sin, cy + a * half_w * sin + b * half_h * cos) for a, b in signs)


def _rings(contour: object) -> tuple[Ring, ...]:
    rings = listed(contour)
    if rings is None:
        raise ValueError(f"contour: Expected a list of lists of points, got {brief(contour)}")
    return tuple(tuple(_point(point) for point in listed(ring) or ()) for ring in rings)


def _point(value: object) -> tuple[float, float]:
    if not isinstance(value, Mapping):
        raise ValueError(f"contour: Expected a point with x and y, got {brief(value)}")
    point = cast("Mapping[str, object]", value)
    return _number(point, "x"), _number(point, "y")


def _number(record: Mapping[str, object], name: str) -> float:
    value = record.get(name)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            if abs(value) <= _MAX_COORDINATE:
                return float(value)
            raise ValueError(f"{name}: Expected a number within {_MAX_COORDINATE:.0f} of 0, got {brief(value)}")
    except OverflowError:
        pass
    raise ValueError(f"{name}: Expected a finite number, got {brief(value)}")
