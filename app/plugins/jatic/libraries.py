"""Serve Python classes that follow MAITE's protocols, and answers of MAITE, supervision and Ultralytics.

Attributes identify the objects, so none of these libraries is needed. Other answers are arrays in an order that
libraries have: rows, tuples, scores (1, C), a label.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.python.outputs.value_parsing import ROUNDING, array, check_items, invalid_answer, items
from app.core.runtimes.python.task_adapters import PythonLibrary
from tasks.task import TaskType

_CORNERS = "xyxyxyxy"
"""The key of ``data`` with the corners of oriented boxes."""

_RESULTS = ("names", "orig_shape", "boxes", "masks", "probs", "keypoints", "obb")
"""The attributes by which Ultralytics' ``Results`` are known; the last five are the parts of the tasks."""
_GEOMETRIES = {
    TaskType.OBJECT_DETECTION: "boxes",
    TaskType.ORIENTED_OBJECT_DETECTION: "boxes",
    TaskType.IMAGE_SEGMENTATION: "masks",
}
_SIDES = {TaskType.OBJECT_DETECTION: 4, TaskType.ORIENTED_OBJECT_DETECTION: 5}
"""Numbers of a box."""


def adapt(target: object) -> object:
    """Return an object with ``predict`` for one that follows MAITE's protocols, and any other unchanged."""
    metadata = getattr(target, "metadata", None)
    follows = not hasattr(target, "predict") and callable(target) and isinstance(metadata, Mapping)
    return _MaiteClass(target) if follows else target


class _MaiteClass:
    """Adapts an ``ImageClassifier`` or ``ObjectDetector`` to a class with ``predict``.

    They are called with a batch of (channels, height, width) arrays. Their ``metadata`` has an id and, optionally,
    class names by number.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.load, self.close = getattr(model, "load", None), getattr(model, "close", None)
        self.labels = dict(model.metadata).get("index2label")

    def predict(self, images: Sequence[NDArray[np.uint8]]) -> object:
        """Call the model with (H, W, 3) images, transposed to MAITE's (3, H, W)."""
        return self._model([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images])


def own_scores(answer: Any, path: str, _: TaskType) -> object:
    """Return a detection target whose (N, C) scores become the scores of its labels, and others unchanged."""
    if any(not hasattr(answer, name) for name in ("boxes", "labels", "scores")):
        return answer
    scores, numbers = array(answer.scores, f"{path}.scores"), array(answer.labels, f"{path}.labels")
    is_numbered = numbers.dtype.kind in "iu" and scores.ndim == 2 and numbers.shape == scores.shape[:1]
    if not is_numbered or (numbers.size and not 0 <= numbers.min() <= numbers.max() < scores.shape[1]):
        return answer
    return {"boxes": answer.boxes, "labels": numbers, "scores": scores[np.arange(len(numbers)), numbers]}


def to_arrays(answer: Any, _: str, task_type: TaskType) -> object:
    """Return the labels, scores and geometry of one of supervision's objects, and any other answer unchanged.

    Class names come from ``data["class_name"]`` if it exists, or else from the class numbers.
    """
    if isinstance(answer, Mapping) or not (hasattr(answer, "confidence") and hasattr(answer, "class_id")):
        return cast("object", answer)
    found: object = getattr(answer, "data", None)
    data: Mapping[str, Any] = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
    labels = data.get("class_name", answer.class_id)
    is_empty = np.size(labels) == 0
    scores = () if answer.confidence is None and is_empty else answer.confidence
    arrays: Mapping[str, Any] = {"labels": labels, "scores": scores}
    match task_type:
        case TaskType.OBJECT_DETECTION:
            return {**arrays, "boxes": getattr(answer, "xyxy", None), "keypoints": data.get("keypoints")}
        case TaskType.ORIENTED_OBJECT_DETECTION:
            return {**arrays, "boxes": data.get(_CORNERS, np.zeros((0, 4, 2)))}
        case TaskType.IMAGE_SEGMENTATION:
            masks = getattr(answer, "mask", None)
            return {**arrays, "masks": () if masks is None and is_empty else masks}
        case _:
            return arrays


def from_ultralytics(answer: Any, path: str, task_type: TaskType) -> object:
    """Return the labels, scores and geometry of ``Results``, or of a list with one, and any other answer unchanged.

    Masks of the image's size are returned as they are, and smaller ones as the polygons ``masks.xy``. Raise
    MODEL_FAILED if the result is of a model of another task.
    """
    listed = cast("list[Any]", answer) if isinstance(answer, list) else [answer]
    result: Any = listed[0] if len(listed) == 1 else None
    if any(not hasattr(result, name) for name in _RESULTS):
        return cast("object", answer)
    part = {TaskType.IMAGE_CLASSIFICATION: "probs", TaskType.ORIENTED_OBJECT_DETECTION: "obb"}.get(task_type, "boxes")
    found: Any = getattr(result, part)
    if found is None:
        others = [name for name in _RESULTS[2:] if getattr(result, name) is not None]
        raise invalid_answer(path, f"a result with {part} for {task_type}", f"one with {', '.join(others)}")
    if part == "probs":
        scores = array(found.data, f"{path}.probs.data")
        return {"labels": [result.names[number] for number in range(len(scores))], "scores": scores}
    numbers = array(found.cls, f"{path}.{part}.cls").tolist()
    arrays = {"labels": [result.names[int(number)] for number in numbers], "scores": found.conf}
    if part == "obb":
        return {**arrays, "boxes": found.xywhr}
    if task_type is not TaskType.IMAGE_SEGMENTATION:
        return {**arrays, "boxes": found.xyxy, "keypoints": getattr(result.keypoints, "data", None)}
    masks: Any = result.masks
    if masks is None or tuple(masks.data.shape[1:]) == tuple(result.orig_shape):
        return {**arrays, "masks": masks.data if masks else ()}
    return {**arrays, "contours": [[polygon] if len(polygon) else [] for polygon in masks.xy]}


def read_order(answer: object, path: str, task_type: TaskType) -> object:
    """Return an answer as arrays or scores by name, if its shape shows what its parts are; any other one unchanged.

    Raise MODEL_FAILED if the numbers of rows fit no order.
    """
    if task_type is TaskType.IMAGE_CLASSIFICATION:
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


LIBRARIES = (
    PythonLibrary(model=adapt, answer=own_scores),
    PythonLibrary(answer=to_arrays),
    PythonLibrary(answer=from_ultralytics),
    PythonLibrary(answer=read_order),
)
