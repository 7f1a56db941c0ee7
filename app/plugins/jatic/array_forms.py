"""Read answers of Python classes as arrays in an order that libraries have: rows, tuples, scores (1, C), a label."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.python.outputs.value_parsing import ROUNDING, array, check_items, items
from tasks.task import TaskType

_GEOMETRIES = {
    TaskType.OBJECT_DETECTION: "boxes",
    TaskType.ORIENTED_OBJECT_DETECTION: "boxes",
    TaskType.IMAGE_SEGMENTATION: "masks",
    TaskType.TOKEN_CLASSIFICATION: "spans",
}
_SIDES = {TaskType.OBJECT_DETECTION: 4, TaskType.ORIENTED_OBJECT_DETECTION: 5}
"""Numbers of a box."""


def read_order(answer: object, path: str, task_type: TaskType) -> object:
    """Return an answer as arrays or scores by name, if its shape shows what its parts are; any other one unchanged.

    Raise MODEL_FAILED if the numbers of rows fit no order.
    """
    if task_type in (TaskType.IMAGE_CLASSIFICATION, TaskType.TEXT_CLASSIFICATION):
        return _read_scores(answer)
    if task_type is TaskType.IMAGE_SEGMENTATION and hasattr(type(answer), "__array_interface__"):
        return array(answer, path)  # a label map as an image of Pillow
    listed = items(answer)
    if listed is None or task_type not in _GEOMETRIES:
        return answer
    is_list = isinstance(listed, (list, tuple))
    if is_list and len(listed) == 3 and items(listed[0]) is not None and not _is_row(listed[0]):
        return dict(zip((_GEOMETRIES[task_type], "scores", "labels"), listed, strict=True))
    if task_type in _SIDES and (not is_list or (len(listed) and _is_row(listed[0]))):
        return _read_rows(answer, path, _SIDES[task_type])
    return answer


def _read_scores(answer: object) -> object:
    listed = items(answer)
    if listed is not None and len(listed) == 1 and (items(listed[0]) is not None or isinstance(listed[0], str)):
        answer = listed[0]
    label = cast("Any", answer).item() if getattr(answer, "shape", None) == () else answer
    # A float may be a score.
    is_label = isinstance(label, (str, int)) and not isinstance(label, bool)
    return {label: 1.0} if is_label else answer


def _read_rows(answer: object, path: str, sides: int) -> object:
    """Read rows of `sides` + 2 or 3 numbers: a box, its score and its class number, as ``boxes.data`` of Ultralytics.

    Before the score may be the number of a track, or YOLOX's score of any object, by which the score is multiplied. If
    this does not fit, six numbers are PaddleDetection's: class number, score, and box.
    """
    rows = array(answer, path)
    if not rows.size and rows.dtype.kind in "biuf":
        return []
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or rows.shape[1] not in (sides + 2, sides + 3):
        return answer
    boxes, between, scores, class_ids = rows[:, :sides], rows[:, sides:-2], rows[:, -2], rows[:, -1]
    fits = _are_scores(scores) & _are_numbers(class_ids)
    if rows.shape[1] == 6 and not fits.all() and (_are_scores(rows[:, 1]) & _are_numbers(rows[:, 0])).all():
        return {"boxes": rows[:, 2:], "scores": rows[:, 1], "labels": rows[:, 0]}
    if _are_scores(between).all():
        scores = scores * between.prod(axis=1)
        expected = "a box, its score and its class number"
    else:
        fits &= _are_numbers(between).all(axis=1)
        expected = "a box, a track or score, the score and the class number"
    check_items(fits, rows, expected, path)
    return {"boxes": boxes, "scores": scores, "labels": class_ids}


def _is_row(value: object) -> bool:
    """Return whether a value is a list or array of numbers, and not empty."""
    listed = items(value)
    return listed is not None and len(listed) > 0 and items(listed[0]) is None and not isinstance(listed[0], str)


def _are_scores(values: NDArray[Any]) -> NDArray[np.bool_]:
    return (values >= -ROUNDING) & (values <= 1 + ROUNDING)


def _are_numbers(values: NDArray[Any]) -> NDArray[np.bool_]:
    return (values >= 0) & (values == np.rint(values))
