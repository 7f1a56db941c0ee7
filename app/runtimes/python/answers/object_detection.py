"""Convert the return value of a detector."""

import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.labelled_scores import (
    check_lengths,
    read_parallel,
    read_records,
    read_supervision,
    table,
)
from app.runtimes.python.answers.value_parsing import (
    ClassNames,
    ItemPath,
    describe,
    fields,
    finite,
    invalid_answer,
    numbers,
)
from tasks.object_detection import DetectionInput, Detections

__all__ = ("read_detections",)

_FORMS = (
    "Detections, boxes with scores and labels, a list of records with label, score, xmin, ymin, xmax and ymax, "
    "or supervision's Detections"
)
_SIDES = ("xmin", "ymin", "xmax", "ymax")


def read_detections(value: object, path: str, item: DetectionInput, labels: ClassNames) -> Detections:
    """Read the objects of one image from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    del item
    if (parallel := read_parallel(value, path, "boxes", labels)) is not None:
        labelled, (boxes, boxes_path) = parallel
        checked = _check_boxes(numbers(boxes, boxes_path, ("N", 4)), lambda index: f"{boxes_path}[{index}]")
    elif (supervised := read_supervision(value, path, labels)) is not None:
        labelled = supervised
        boxes, boxes_path = (fields(value, path, ("xyxy",)) or {}).get("xyxy", (None, f"{path}.xyxy"))
        checked = _check_boxes(numbers(boxes, boxes_path, ("N", 4)), lambda index: f"{boxes_path}[{index}]")
    elif (records := read_records(value, path, _SIDES, labels)) is not None:
        labelled, by_field = records
        checked = _check_boxes(table(by_field, path, _SIDES), lambda index: f"{path}[{index}]")
    else:
        raise invalid_answer(path, _FORMS, describe(value))
    check_lengths(path, "boxes", len(checked), labelled)
    return Detections(labels=labelled.labels, scores=labelled.scores, boxes=checked)


def _check_boxes(boxes: NDArray[np.float32], item_path: ItemPath) -> NDArray[np.float32]:
    finite(boxes, item_path)
    for index in np.flatnonzero((boxes[:, 2:] < boxes[:, :2]).any(axis=1)).tolist():
        raise invalid_answer(item_path(index), "left <= right and top <= bottom", str(boxes[index].tolist()))
    return boxes
