"""Convert the return value of a segmenter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.findings import check_lengths, read_parallel, read_records, read_supervision
from app.runtimes.python.answers.reading import Labels, described, fields, finite, items, numbers, refused
from tasks.image_segmentation import SegmentationInput, Segments
from tasks.vision.contours import Contour, contours_of_mask

__all__ = ("read_segments",)

_FORMS = (
    "Segments, masks or contours with scores and labels, a map of class numbers, a list of records with label, score "
    "and contour, or supervision's Detections with masks"
)
_BACKGROUND = "background"
_VOID = 255
"""The class number of unlabelled pixels in the label maps of many data sets."""


def read_segments(value: object, path: str, item: SegmentationInput, labels: Labels) -> Segments:
    """Read the objects of one image from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    size = (item.image.height, item.image.width)
    if (parallel := read_parallel(value, path, "masks", labels)) is not None:
        findings, (masks, at) = parallel
        contours = _mask_contours(masks, at, size)
    elif (parallel := read_parallel(value, path, "contours", labels)) is not None:
        findings, (given, at) = parallel
        contours = [_contours(parts, f"{at}[{index}]") for index, parts in enumerate(_sequence(given, at))]
    elif (mapped := fields(value, path, ("label_map",))) is not None:
        scored = (fields(value, path, ("scores",)) or {}).get("scores")
        return _label_map_segments(*mapped["label_map"], scored, size, labels)
    elif (supervised := read_supervision(value, path, labels)) is not None:
        findings = supervised
        masks = getattr(value, "mask", None)
        contours = _mask_contours(() if masks is None and not findings.labels else masks, f"{path}.mask", size)
    elif (records := read_records(value, path, ("contour",), labels)) is not None:
        findings, read = records
        contours = [_contours(parts, f"{path}[{index}].contour") for index, parts in enumerate(read["contour"])]
    elif getattr(value, "ndim", 0) == 2:
        return _label_map_segments(value, path, None, size, labels)
    else:
        raise refused(path, _FORMS, described(value))
    check_lengths(path, "objects", len(contours), findings)
    return Segments(labels=findings.labels, scores=findings.scores, contours=contours)


def _mask_contours(masks: object, path: str, size: tuple[int, int]) -> list[list[Contour]]:
    """Convert one mask at a time: all masks of a large image as float32 would take several times the memory."""
    sequence = _sequence(masks, path)
    return [contours_of_mask(_mask(mask, f"{path}[{index}]", size)) for index, mask in enumerate(sequence)]


def _mask(value: object, path: str, size: tuple[int, int]) -> NDArray[np.uint8]:
    if getattr(value, "dtype", None) == np.bool_ and getattr(value, "shape", None) == size:
        return np.asarray(value, np.uint8)
    found = numbers(value, path, size)
    if not ((found == 0) | (found == 1)).all():
        raise refused(path, "a mask of booleans, or of 0 and 1", f"numbers up to {found.max():g}")
    return found.astype(np.uint8)


def _label_map_segments(
    value: object, path: str, scored: tuple[object, str] | None, size: tuple[int, int], labels: Labels
) -> Segments:
    """Make one object for each class in a map except the background. Its score is the mean of its pixels' scores."""
    classes = numbers(value, path, size)
    if not (np.isfinite(classes).all() and (classes == np.rint(classes)).all()):
        raise refused(path, "a map of class numbers", "numbers that are not integers")
    pixels = np.ones(size, np.float32) if scored is None else numbers(*scored, size)
    found: list[tuple[str, float, list[Contour]]] = []
    for number in np.unique(classes).tolist():
        if number < 0 or (number == _VOID and len(labels.known) <= _VOID):
            continue
        name = labels.name(number, path)
        if name.lower() != _BACKGROUND:
            mask = classes == number
            found.append((name, float(pixels[mask].mean()), contours_of_mask(mask.astype(np.uint8))))
    means = np.array([score for _, score, _ in found], np.float32)
    if not ((means >= 0) & (means <= 1)).all():
        raise refused(path if scored is None else scored[1], "scores of 0..1", "others")
    return Segments(labels=[name for name, _, _ in found], scores=means, contours=[parts for _, _, parts in found])


def _contours(value: object, path: str) -> list[Contour]:
    return [_contour(part, f"{path}[{index}]") for index, part in enumerate(_sequence(value, path))]


def _contour(value: object, path: str) -> Contour:
    """Read (P, 2) points from an array, or from records with x and y."""
    points = _sequence(value, path)
    if len(points) and (fields(points[0], path, ("x", "y")) is not None):
        read = [fields(point, f"{path}[{index}]", ("x", "y")) for index, point in enumerate(points)]
        if not all(read):
            raise refused(path, "points with x and y", "at least one without them")
        value = [[point["x"][0], point["y"][0]] for point in read if point is not None]
    return finite(numbers(value, path, ("P", 2)), lambda index: f"{path}[{index}]")


def _sequence(value: object, path: str) -> Sequence[Any]:
    found = items(value)
    if found is None:
        raise refused(path, "a list or an array", described(value))
    return found
