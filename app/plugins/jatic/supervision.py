"""Convert supervision's `Detections` and `Classifications` to parallel arrays.

Their fields identify them, so supervision itself is not needed.
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from tasks.task import TaskType

_CORNERS = "xyxyxyxy"
"""The key of ``data`` with the corners of oriented boxes."""


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
