"""Convert the return values of detectors of boxes and of oriented boxes."""

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.labelled_scores import RECORDS, read_objects, table
from app.runtimes.python.answers.value_parsing import ClassNames, describe, finite, invalid_answer, numbers
from tasks.object_detection import DetectionInput, Detections
from tasks.oriented_object_detection import OrientedDetections

_FORMS = (
    "Detections, boxes with scores and labels, a list of records with label, score, xmin, ymin, xmax and ymax, "
    "or supervision's Detections"
)
_ORIENTED_FORMS = (
    "OrientedDetections, boxes with scores and labels, a list of records with label, score, cx, cy, w, h and r, "
    "or supervision's Detections with oriented boxes"
)
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_ORIENTED_FIELDS = ("cx", "cy", "w", "h", "r")
_CORNERS = "xyxyxyxy"
"""The key of supervision's ``data`` with the corners of oriented boxes."""


def read_detections(value: object, path: str, item: DetectionInput, labels: ClassNames) -> Detections:
    """Read the objects of one image from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    del item
    supervised = getattr(value, "xyxy", None), f"{path}.xyxy"
    found = read_objects(value, path, labels, ("boxes",), _SIDES, supervised)
    if found is None:
        raise invalid_answer(path, _FORMS, describe(value))
    is_records = found.form == RECORDS
    boxes = table(found.geometry, path, _SIDES) if is_records else numbers(found.geometry, found.path, ("N", 4))
    finite(boxes, found.path)
    for index in np.flatnonzero((boxes[:, 2:] < boxes[:, :2]).any(axis=1)).tolist():
        got = str(boxes[index].tolist())
        raise invalid_answer(f"{found.path}[{index}]", "left <= right and top <= bottom", got)
    found.check_lengths(path, boxes=len(boxes))
    return Detections(labels=found.labels, scores=found.scores, boxes=boxes)


def read_oriented_detections(value: object, path: str, item: DetectionInput, labels: ClassNames) -> OrientedDetections:
    """Read the objects of one image from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    width, height = item.image.width, item.image.height
    data = getattr(value, "data", None)
    corners = cast("Mapping[str, object]", data).get(_CORNERS) if isinstance(data, Mapping) else None
    supervised = np.zeros((0, 4, 2)) if corners is None else corners, f'{path}.data["{_CORNERS}"]'
    found = read_objects(value, path, labels, ("boxes",), _ORIENTED_FIELDS, supervised)
    if found is None:
        raise invalid_answer(path, _ORIENTED_FORMS, describe(value))
    if found.form == RECORDS:
        # Records use the wire format, in which centre and size are fractions of the image.
        sides = np.array([width, height, width, height, 1], np.float32)
        boxes = table(found.geometry, path, _ORIENTED_FIELDS) * sides
    elif getattr(found.geometry, "ndim", 2) == 3:
        boxes = _from_corners(found.geometry, found.path)
    else:
        boxes = numbers(found.geometry, found.path, ("N", 5))
    finite(boxes, found.path)
    for index in np.flatnonzero((boxes[:, 2:4] < 0).any(axis=1)).tolist():
        got = str(boxes[index].tolist())
        raise invalid_answer(f"{found.path}[{index}]", "a width and a height of 0 or more", got)
    found.check_lengths(path, boxes=len(boxes))
    return OrientedDetections(labels=found.labels, scores=found.scores, boxes=boxes, width=width, height=height)


def _from_corners(value: object, path: str) -> NDArray[np.float32]:
    """Convert (N, 4, 2) corners in pixels, in order around the box, to (N, 5) boxes. The first side is the width."""
    corners = numbers(value, path, ("N", 4, 2))
    across, down = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 1]
    sizes = np.stack([np.hypot(*across.T), np.hypot(*down.T), np.arctan2(across[:, 1], across[:, 0])], axis=1)
    return np.concatenate([corners.mean(axis=1), sizes], axis=1, dtype=np.float32)
