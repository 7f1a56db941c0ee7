"""Convert the return values of detectors of boxes and of oriented boxes, and of segmenters.

The functions raise an `InferenceError` MODEL_FAILED with the path of the first invalid value.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.python.outputs.labelled_scores import RECORDS, LabelledObjects, check_lengths, read_objects
from app.core.runtimes.python.outputs.value_parsing import (
    ClassNames,
    array,
    check_items,
    describe,
    fields,
    finite,
    invalid_answer,
    items,
    numbers,
)
from tasks.image_segmentation import SegmentationInput, Segments
from tasks.object_detection import DetectionInput, Detections
from tasks.oriented_object_detection import OrientedDetections
from tasks.vision.contours import Contour, contours_of_mask

_BOX_FORMS = (
    "Detections, boxes with scores and labels, or a list of records with label, score, xmin, ymin, xmax and ymax"
)
_ORIENTED_FORMS = (
    "OrientedDetections, boxes with scores and labels, or a list of records with label, score, cx, cy, w, h and r"
)
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_ORIENTED_FIELDS = ("cx", "cy", "w", "h", "r")
_SEGMENT_FORMS = (
    "Segments, masks or contours with scores and labels, a map of class numbers, or a list of records with label, "
    "score and contour"
)
_BACKGROUND = "background"
_VOID = 255
"""The class number of unlabelled pixels in the label maps of many data sets."""


def read_detections(value: object, path: str, item: DetectionInput, labels: ClassNames) -> Detections:
    """Read the objects of one image from any form in ``docs/python_models.md``."""
    del item
    found = read_objects(value, path, labels, ("boxes",), _SIDES)
    if found is None:
        raise invalid_answer(path, _BOX_FORMS, describe(value))
    boxes = finite(numbers(found.geometry, found.path, ("N", 4)), found.path)
    check_items(boxes[:, 2:] >= boxes[:, :2], boxes, "left <= right and top <= bottom", found.path)
    check_lengths(path, boxes=boxes, scores=found.scores, labels=found.labels)
    keypoints = _keypoints(value, path, found, len(boxes))
    return Detections(labels=found.labels, scores=found.scores, boxes=boxes, keypoints=keypoints)


def _keypoints(value: object, path: str, found: LabelledObjects, count: int) -> NDArray[np.float32] | None:
    """Return the (N, K, 2 or 3) keypoints of `count` objects; None without."""
    points, points_path = _optional(value, path, "keypoints")
    if found.form == RECORDS:
        by_record = [_optional(record, path, "keypoints")[0] for record in cast("Sequence[object]", value)]
        points = None if all(pose is None for pose in by_record) else by_record
    if points is None or not count:
        return None
    coordinates = 2 if array(points, points_path).shape[-1:] == (2,) else 3
    return finite(numbers(points, points_path, (count, "K", coordinates)), points_path)


def _optional(value: object, path: str, name: str) -> tuple[object, str]:
    """Return a key of a mapping or an attribute of an object, and its path; None if it is missing."""
    return (fields(value, path, (name,)) or {}).get(name, (None, f"{path}.{name}"))


def read_oriented_detections(value: object, path: str, item: DetectionInput, labels: ClassNames) -> OrientedDetections:
    """Read the objects of one image from any form in ``docs/python_models.md``."""
    width, height = item.image.width, item.image.height
    found = read_objects(value, path, labels, ("boxes",), _ORIENTED_FIELDS)
    if found is None:
        raise invalid_answer(path, _ORIENTED_FORMS, describe(value))
    if getattr(found.geometry, "ndim", 2) == 3:
        boxes = _from_corners(found.geometry, found.path)
    else:
        boxes = numbers(found.geometry, found.path, ("N", 5))
    if found.form == RECORDS:
        # Records use the wire format, in which centre and size are fractions of the image.
        boxes *= np.array([width, height, width, height, 1], np.float32)
    finite(boxes, found.path)
    check_items(boxes[:, 2:4] >= 0, boxes, "a width and a height of 0 or more", found.path)
    check_lengths(path, boxes=boxes, scores=found.scores, labels=found.labels)
    return OrientedDetections(labels=found.labels, scores=found.scores, boxes=boxes, width=width, height=height)


def _from_corners(value: object, path: str) -> NDArray[np.float32]:
    """Convert (N, 4, 2) corners in pixels, in order around the box, to (N, 5) boxes. The first side is the width."""
    corners = numbers(value, path, ("N", 4, 2))
    across, down = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 1]
    sizes = np.stack([np.hypot(*across.T), np.hypot(*down.T), np.arctan2(across[:, 1], across[:, 0])], axis=1)
    return np.concatenate([corners.mean(axis=1), sizes], axis=1, dtype=np.float32)


def read_segments(value: object, path: str, item: SegmentationInput, labels: ClassNames) -> Segments:
    """Read the objects of one image from any form in ``docs/python_models.md``."""
    size = (item.image.height, item.image.width)
    found = read_objects(value, path, labels, ("masks", "contours"), ("contour",))
    if found is None:
        if (mapped := fields(value, path, ("label_map",))) is not None:
            return _label_map_segments(*mapped["label_map"], _optional(value, path, "scores"), size, labels)
        if getattr(value, "ndim", 0) == 2:
            return _label_map_segments(value, path, (None, path), size, labels)
        raise invalid_answer(path, _SEGMENT_FORMS, describe(value))
    suffix = ".contour" if found.form == RECORDS else ""
    contours: list[list[Contour]] = []
    # One mask at a time: all masks of a large image as float32 would take several times the memory.
    for index, shape in enumerate(_sequence(found.geometry, found.path)):
        shape_path = f"{found.path}[{index}]{suffix}"
        if found.form == "masks":
            contours.append(contours_of_mask(_mask(shape, shape_path, size)))
        else:
            parts = enumerate(_sequence(shape, shape_path))
            contours.append([_contour(part, f"{shape_path}[{number}]") for number, part in parts])
    check_lengths(path, objects=contours, scores=found.scores, labels=found.labels)
    return Segments(labels=found.labels, scores=found.scores, contours=contours)


def _mask(value: object, path: str, size: tuple[int, int]) -> NDArray[np.uint8]:
    mask = array(value, path)
    mask = mask[0] if mask.shape == (1, *size) else mask
    if mask.dtype == np.bool_ and mask.shape == size:
        return mask.astype(np.uint8)
    values = numbers(mask, path, size)
    if not ((values == 0) | (values == 1)).all() and not ((values == 0) | (values == 255)).all():
        expected = "a mask of booleans, of 0 and 1, or of 0 and 255, not of probabilities"
        raise invalid_answer(path, expected, f"numbers up to {values.max():g}")
    return (values != 0).astype(np.uint8)


def _label_map_segments(
    value: object, path: str, score_map: tuple[object, str], size: tuple[int, int], labels: ClassNames
) -> Segments:
    """Make one object for each class in a map except the background. Its score is the mean of its pixels' scores."""
    classes = numbers(value, path, size)
    if not (np.isfinite(classes).all() and (classes == np.rint(classes)).all()):
        raise invalid_answer(path, "a map of class numbers", "numbers that are not integers")
    class_ids = np.unique(classes).tolist()
    if class_ids == [0, _VOID] and len(labels.known) <= _VOID:
        expected = 'a map of class numbers; return a mask as {"masks": [mask], "scores": [1], "labels": [label]}'
        raise invalid_answer(path, expected, "only 0 and 255, as in a mask")
    pixels = np.ones(size, np.float32) if score_map[0] is None else numbers(*score_map, size)
    objects: list[tuple[str, float, list[Contour]]] = []
    for number in class_ids:
        if number < 0 or (number == _VOID and len(labels.known) <= _VOID):
            continue
        name = labels.name(number, path)
        if name.lower() != _BACKGROUND:
            mask = classes == number
            objects.append((name, float(pixels[mask].mean()), contours_of_mask(mask.astype(np.uint8))))
    means = np.array([score for _, score, _ in objects], np.float32)
    if not ((means >= 0) & (means <= 1)).all():
        raise invalid_answer(score_map[1], "scores of 0..1", "others")
    return Segments(labels=[name for name, _, _ in objects], scores=means, contours=[parts for _, _, parts in objects])


def _contour(value: object, path: str) -> Contour:
    """Read (P, 2) points from an array, or from records with x and y."""
    points = _sequence(value, path)
    if len(points) and (fields(points[0], path, ("x", "y")) is not None):
        points_by_field = [fields(point, f"{path}[{index}]", ("x", "y")) for index, point in enumerate(points)]
        if not all(points_by_field):
            raise invalid_answer(path, "points with x and y", "at least one without them")
        value = [[point["x"][0], point["y"][0]] for point in points_by_field if point is not None]
    return finite(numbers(value, path, ("P", 2)), path)


def _sequence(value: object, path: str) -> Sequence[Any]:
    listed = items(value)
    if listed is None:
        raise invalid_answer(path, "a list or an array", describe(value))
    return listed
