"""Serve Python classes that follow MAITE's protocols, and answers of MAITE, supervision and Ultralytics.

Attributes identify the objects, so none of these libraries is needed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.python.outputs.value_parsing import array, invalid_answer
from app.core.runtimes.python.task_adapters import PythonLibrary
from app.plugins.jatic.array_forms import read_order
from tasks.task import TaskType

_CORNERS = "xyxyxyxy"
"""The key of ``data`` with the corners of oriented boxes."""

_RESULTS = ("names", "orig_shape", "boxes", "masks", "probs", "keypoints", "obb")
"""The attributes by which Ultralytics' ``Results`` are known; the last five are the parts of the tasks."""


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


LIBRARIES = (
    PythonLibrary(model=adapt, answer=own_scores),
    PythonLibrary(answer=to_arrays),
    PythonLibrary(answer=from_ultralytics),
    PythonLibrary(answer=read_order),
)
