"""Convert the return value of a detector."""

import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.findings import check_lengths, read_parallel, read_records, read_supervision, table
from app.runtimes.python.answers.reading import Labels, Place, described, fields, finite, numbers, refused
from tasks.object_detection import DetectionInput, Detections

__all__ = ("read_detections",)

_FORMS = (
    "Detections, boxes with scores and labels, a list of records with label, score, xmin, ymin, xmax and ymax, "
    "or supervision's Detections"
)
_SIDES = ("xmin", "ymin", "xmax", "ymax")


def read_detections(value: object, path: str, item: DetectionInput, labels: Labels) -> Detections:
    """Read the objects of one image from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    del item
    if (parallel := read_parallel(value, path, "boxes", labels)) is not None:
        findings, (boxes, at) = parallel
        checked = _boxes(numbers(boxes, at, ("N", 4)), lambda index: f"{at}[{index}]")
    elif (supervised := read_supervision(value, path, labels)) is not None:
        findings = supervised
        boxes, at = (fields(value, path, ("xyxy",)) or {}).get("xyxy", (None, f"{path}.xyxy"))
        checked = _boxes(numbers(boxes, at, ("N", 4)), lambda index: f"{at}[{index}]")
    elif (records := read_records(value, path, _SIDES, labels)) is not None:
        findings, read = records
        checked = _boxes(table(read, path, _SIDES), lambda index: f"{path}[{index}]")
    else:
        raise refused(path, _FORMS, described(value))
    check_lengths(path, "boxes", len(checked), findings)
    return Detections(labels=findings.labels, scores=findings.scores, boxes=checked)


def _boxes(boxes: NDArray[np.float32], place: Place) -> NDArray[np.float32]:
    finite(boxes, place)
    for index in np.flatnonzero((boxes[:, 2:] < boxes[:, :2]).any(axis=1)).tolist():
        raise refused(place(index), "left <= right and top <= bottom", str(boxes[index].tolist()))
    return boxes
