"""Parse the records of a model's answer for one image, in the form that every protocol uses."""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from app.plugins.evaluation.dataset import Item, Ring, Shape
from app.plugins.evaluation.datasets.files import as_list, parse_number
from tasks.image_classification import LabelledScore
from tasks.inference.error import quote_value
from tasks.oriented_object_detection import OrientedObject
from tasks.task import Geometry, ResultKind, TaskType

_SCORE_TOLERANCE = 1e-5
"""Tolerance of scores beyond 0..1, for rounding in half precision."""
_FIELDS: Mapping[str, Geometry | ResultKind] = {
    "contour": "contour",
    "xmin": "box",
    "cx": "oriented",
    "answer": "texts",
    "label": "classes",
}
"""A field that only records of this kind have, in the order in which they are looked for."""
_CLASS_FIELDS = frozenset(LabelledScore.__struct_fields__)
MEASURED_TASKS = [
    task_type
    for task_type in TaskType
    if task_type.takes in ("image", "question") and (task_type.geometry or task_type.returns in ("classes", "texts"))
]
"""The task types that an evaluation can measure."""
_TASKS = {task_type.geometry or task_type.returns: task_type for task_type in reversed(MEASURED_TASKS)}


class PredictedObject(Shape, frozen=True, kw_only=True):
    """One prediction, with a score of 0..1."""

    score: float


class EvaluatedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item with its predictions, or with the answer to its question."""

    item: Item
    predictions: tuple[PredictedObject, ...] = ()
    answer: str = ""


def infer_task(records: Sequence[Mapping[str, object]]) -> TaskType | None:
    """Infer the task from the fields of the records; None without records.

    Classes have only `label` and `score`: other fields could be a place in a form that is not known. Raise ValueError
    when no task with these fields can be measured.
    """
    if not records:
        return None
    for record in records:
        for field, kind in _FIELDS.items():
            if field in record and (kind != "classes" or record.keys() <= _CLASS_FIELDS):
                return _TASKS[kind]
    fields = ", ".join(records[0]) or "no fields"
    raise ValueError(f"Expected answers of {' or '.join(MEASURED_TASKS)}, got records with {fields}")


def parse_records(records: Sequence[Mapping[str, object]], item: Item, task: TaskType) -> EvaluatedItem:
    """Parse the records of `task` for `item`. Raise `ValueError` for records of another task, or not finite ones."""
    if task.returns == "texts":
        answers = [record.get("answer") for record in records]
        if len(answers) != 1 or not isinstance(answers[0], str):
            raise ValueError(f"Expected one answer to the question, got {quote_value(answers)}")
        return EvaluatedItem(item=item, answer=answers[0])
    return EvaluatedItem(item=item, predictions=tuple(_parse_prediction(record, item, task) for record in records))


def _parse_prediction(record: Mapping[str, object], item: Item, task: TaskType) -> PredictedObject:
    label, score = record.get("label"), _read_number(record, "score")
    if not isinstance(label, str):
        raise ValueError(f"label: Expected a text, got {quote_value(label)}")
    if not -_SCORE_TOLERANCE <= score <= 1 + _SCORE_TOLERANCE:
        raise ValueError(f"score: Expected a number within 0..1, got {score}")
    score = min(max(score, 0.0), 1.0)
    match task.geometry:
        case "box":
            left, top, right, bottom = (_read_number(record, name) for name in ("xmin", "ymin", "xmax", "ymax"))
            return PredictedObject(label=label, score=score, box=(left, top, right, bottom))
        case "oriented":
            cx, cy, w, h, r = (_read_number(record, name) for name in ("cx", "cy", "w", "h", "r"))
            (ring,) = OrientedObject(label, score, cx, cy, w, h, r).rings(item.width, item.height)
            return PredictedObject(label=label, score=score, rings=(tuple((x, y) for x, y in ring.tolist()),))
        case "contour":
            return PredictedObject(label=label, score=score, rings=_rings(record.get("contour")))
        case None:
            return PredictedObject(label=label, score=score)


def _rings(contour: object) -> tuple[Ring, ...]:
    rings = as_list(contour)
    if rings is None:
        raise ValueError(f"contour: Expected a list of lists of points, got {quote_value(contour)}")
    return tuple(tuple(_point(point) for point in as_list(ring) or ()) for ring in rings)


def _point(value: object) -> tuple[float, float]:
    if not isinstance(value, Mapping):
        raise ValueError(f"contour: Expected a point with x and y, got {quote_value(value)}")
    point = cast("Mapping[str, object]", value)
    return _read_number(point, "x"), _read_number(point, "y")


def _read_number(record: Mapping[str, object], name: str) -> float:
    value = record.get(name)
    if isinstance(value, str):
        raise ValueError(f"{name}: Expected a finite number, got {quote_value(value)}")
    try:
        return parse_number(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
