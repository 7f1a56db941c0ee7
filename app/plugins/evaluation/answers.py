"""Parse the records of a model's answer for one image, in the form that every protocol uses."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from app.plugins.evaluation.dataset import Item, Shape
from app.plugins.evaluation.datasets.files import MAX_COORDINATE
from tasks.image_classification import LabelledScore
from tasks.image_segmentation import SegmentedObject
from tasks.inference.error import quote_value
from tasks.inference.request import validation_error
from tasks.object_detection import DetectedObject
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
_RECORDS: Mapping[Geometry | None, type[DetectedObject | OrientedObject | SegmentedObject | LabelledScore]] = {
    "box": DetectedObject,
    "oriented": OrientedObject,
    "contour": SegmentedObject,
    None: LabelledScore,
}
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
    try:
        found = msgspec.convert(record, _RECORDS[task.geometry])
    except msgspec.ValidationError as error:
        raise ValueError(str(validation_error(error))) from None
    for name in found.__struct_fields__:
        number = getattr(found, name)
        if isinstance(number, float):
            _check_numbers(name, number)
    if not -_SCORE_TOLERANCE <= found.score <= 1 + _SCORE_TOLERANCE:
        raise ValueError(f"score: Expected a number within 0..1, got {found.score}")
    box, rings = None, None
    if isinstance(found, DetectedObject):
        box = (found.xmin, found.ymin, found.xmax, found.ymax)
    elif not isinstance(found, LabelledScore):
        outlines = found.rings(item.width, item.height)
        for outline in outlines:
            _check_numbers(str(task.geometry), outline)
        rings = tuple(tuple((x, y) for x, y in outline.tolist()) for outline in outlines)
    return PredictedObject(label=found.label, score=min(max(found.score, 0.0), 1.0), box=box, rings=rings)


def _check_numbers(name: str, numbers: ArrayLike) -> None:
    if not np.all(np.abs(numbers) <= MAX_COORDINATE):
        raise ValueError(
            f"{name}: Expected finite numbers within {MAX_COORDINATE:.0f} of 0, got {quote_value(numbers)}"
        )
