"""Convert the return value of a detector of oriented boxes."""

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.labelled_scores import (
    check_lengths,
    read_parallel,
    read_records,
    read_supervision,
    table,
)
from app.runtimes.python.answers.value_parsing import ClassNames, ItemPath, describe, finite, invalid_answer, numbers
from tasks.object_detection import DetectionInput
from tasks.oriented_object_detection import OrientedDetections

__all__ = ("read_oriented_detections",)

_FORMS = (
    "OrientedDetections, boxes with scores and labels, a list of records with label, score, cx, cy, w, h and r, "
    "or supervision's Detections with oriented boxes"
)
_FIELDS = ("cx", "cy", "w", "h", "r")
_CORNERS = "xyxyxyxy"
"""The key of supervision's ``data`` with the corners of oriented boxes."""


def read_oriented_detections(value: object, path: str, item: DetectionInput, labels: ClassNames) -> OrientedDetections:
    """Read the objects of one image from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    width, height = item.image.width, item.image.height
    if (parallel := read_parallel(value, path, "boxes", labels)) is not None:
        labelled, (box_values, boxes_path) = parallel
        boxes = (
            _from_corners(box_values, boxes_path)
            if getattr(box_values, "ndim", 2) == 3
            else numbers(box_values, boxes_path, ("N", 5))
        )
        checked = _check_boxes(boxes, lambda index: f"{boxes_path}[{index}]")
    elif (supervised := read_supervision(value, path, labels)) is not None:
        labelled = supervised
        data = getattr(value, "data", None)
        corners = cast("Mapping[str, object]", data).get(_CORNERS) if isinstance(data, Mapping) else None
        boxes_path = f'{path}.data["{_CORNERS}"]'
        checked = _check_boxes(
            _from_corners(() if corners is None else corners, boxes_path), lambda index: f"{boxes_path}[{index}]"
        )
    elif (records := read_records(value, path, _FIELDS, labels)) is not None:
        labelled, by_field = records
        # Records use the wire format, in which centre and size are fractions of the image.
        scale = np.array([width, height, width, height, 1], np.float32)
        checked = _check_boxes(table(by_field, path, _FIELDS) * scale, lambda index: f"{path}[{index}]")
    else:
        raise invalid_answer(path, _FORMS, describe(value))
    check_lengths(path, "boxes", len(checked), labelled)
    return OrientedDetections(labels=labelled.labels, scores=labelled.scores, boxes=checked, width=width, height=height)


def _from_corners(value: object, path: str) -> NDArray[np.float32]:
    """Convert (N, 4, 2) corners in pixels, in order around the box, to (N, 5) boxes. The first side is the width."""
    corners = numbers(value, path, ("N", 4, 2))
    across, down = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 1]
    sizes = np.stack([np.hypot(*across.T), np.hypot(*down.T), np.arctan2(across[:, 1], across[:, 0])], axis=1)
    return np.concatenate([corners.mean(axis=1), sizes], axis=1, dtype=np.float32)


def _check_boxes(boxes: NDArray[np.float32], item_path: ItemPath) -> NDArray[np.float32]:
    finite(boxes, item_path)
    for index in np.flatnonzero((boxes[:, 2:4] < 0).any(axis=1)).tolist():
        raise invalid_answer(item_path(index), "a width and a height of 0 or more", str(boxes[index].tolist()))
    return boxes
