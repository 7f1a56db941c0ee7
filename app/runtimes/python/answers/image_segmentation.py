"""Convert the return value of a segmenter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.labelled_scores import RECORDS, SUPERVISION, read_objects
from app.runtimes.python.answers.value_parsing import (
    ClassNames,
    describe,
    fields,
    finite,
    invalid_answer,
    items,
    numbers,
)
from tasks.image_segmentation import SegmentationInput, Segments
from tasks.vision.contours import Contour, contours_of_mask

_FORMS = (
    "Segments, masks or contours with scores and labels, a map of class numbers, a list of records with label, score "
    "and contour, or supervision's Detections with masks"
)
_BACKGROUND = "background"
_VOID = 255
"""The class number of unlabelled pixels in the label maps of many data sets."""


def read_segments(value: object, path: str, item: SegmentationInput, labels: ClassNames) -> Segments:
    """Read the objects of one image from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    size = (item.image.height, item.image.width)
    supervised = getattr(value, "mask", None), f"{path}.mask"
    found = read_objects(value, path, labels, ("masks", "contours"), ("contour",), supervised)
    if found is None:
        if (mapped := fields(value, path, ("label_map",))) is not None:
            scored = (fields(value, path, ("scores",)) or {}).get("scores")
            return _label_map_segments(*mapped["label_map"], scored, size, labels)
        if getattr(value, "ndim", 0) == 2:
            return _label_map_segments(value, path, None, size, labels)
        raise invalid_answer(path, _FORMS, describe(value))
    if found.form == RECORDS:
        shapes = found.geometry["contour"]
        contours = [_contours(parts, f"{path}[{index}].contour") for index, parts in enumerate(shapes)]
    elif found.form == "contours":
        shapes = _sequence(found.geometry, found.path)
        contours = [_contours(parts, f"{found.path}[{index}]") for index, parts in enumerate(shapes)]
    else:
        is_empty = found.form == SUPERVISION and found.geometry is None and not found.labels
        contours = _mask_contours(() if is_empty else found.geometry, found.path, size)
    found.check_lengths(path, objects=len(contours))
    return Segments(labels=found.labels, scores=found.scores, contours=contours)


def _mask_contours(masks: object, path: str, size: tuple[int, int]) -> list[list[Contour]]:
    """Convert one mask at a time: all masks of a large image as float32 would take several times the memory."""
    sequence = _sequence(masks, path)
    return [contours_of_mask(_mask(mask, f"{path}[{index}]", size)) for index, mask in enumerate(sequence)]


def _mask(value: object, path: str, size: tuple[int, int]) -> NDArray[np.uint8]:
    if getattr(value, "dtype", None) == np.bool_ and getattr(value, "shape", None) == size:
        return np.asarray(value, np.uint8)
    values = numbers(value, path, size)
    if not ((values == 0) | (values == 1)).all():
        raise invalid_answer(path, "a mask of booleans, or of 0 and 1", f"numbers up to {values.max():g}")
    return values.astype(np.uint8)


def _label_map_segments(
    value: object, path: str, score_map: tuple[object, str] | None, size: tuple[int, int], labels: ClassNames
) -> Segments:
    """Make one object for each class in a map except the background. Its score is the mean of its pixels' scores."""
    classes = numbers(value, path, size)
    if not (np.isfinite(classes).all() and (classes == np.rint(classes)).all()):
        raise invalid_answer(path, "a map of class numbers", "numbers that are not integers")
    pixels = np.ones(size, np.float32) if score_map is None else numbers(*score_map, size)
    objects: list[tuple[str, float, list[Contour]]] = []
    for number in np.unique(classes).tolist():
        if number < 0 or (number == _VOID and len(labels.known) <= _VOID):
            continue
        name = labels.name(number, path)
        if name.lower() != _BACKGROUND:
            mask = classes == number
            objects.append((name, float(pixels[mask].mean()), contours_of_mask(mask.astype(np.uint8))))
    means = np.array([score for _, score, _ in objects], np.float32)
    if not ((means >= 0) & (means <= 1)).all():
        raise invalid_answer(path if score_map is None else score_map[1], "scores of 0..1", "others")
    return Segments(labels=[name for name, _, _ in objects], scores=means, contours=[parts for _, _, parts in objects])


def _contours(value: object, path: str) -> list[Contour]:
    return [_contour(part, f"{path}[{index}]") for index, part in enumerate(_sequence(value, path))]


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
