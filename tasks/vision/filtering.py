"""Filter predictions by score, label and number, and boxes by their overlaps."""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import check_unicode
from tasks.inference.parameters import InputParameters
from tasks.inference.request import Fraction, Positive, TextList

_PARTITION_FACTOR = 4
_MAX_CANDIDATES = 256
_MAX_CANDIDATE_LENGTH = 256

_BLOCK = 256
"""Oriented boxes that are compared with all others at once: a matrix of overlaps for 2000 needs 4 MB."""
_PAIRS = 1024
"""Pairs of oriented boxes whose intersections are computed at once, in about 2 MB."""
_CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))
_EPSILON = 1e-7
"""Keeps divisions and logarithms of boxes without an area finite."""

MAX_BOXES = 30_000
"""Boxes that suppression compares: Ultralytics' limit."""
MAX_ORIENTED_BOXES = 2000
"""Oriented boxes that suppression compares. Each one is compared with all others, so more would take seconds."""

SCORE_DECIMALS = 7
"""Decimals of scores: the precision of a 32-bit float in 0..1, without the noise of its conversion to 64 bits."""


class SelectionParameters(InputParameters, frozen=True, kw_only=True):
    """Parameters of all vision tasks.

    Attributes:
        action: the action; each task documents its actions and ignores others.
        score_threshold: predictions with a lower score are left out.
        top_k: maximum number of predictions; those with the highest scores are kept.
        labels: keep only these classes; by default all.
        candidate_labels: the classes to detect, for an open-vocabulary model.
    """

    action: str | None = None
    score_threshold: Fraction = 0.0
    top_k: Positive | None = None
    labels: TextList | None = None
    candidate_labels: TextList | None = None


def check_candidate_labels(parameters: SelectionParameters, path: str) -> None:
    """Reject missing, empty, too many or too long `candidate_labels` of an open-vocabulary model, under `path`."""
    labels, path = parameters.candidate_labels, f"{path}.candidate_labels"
    if not labels or not all(label.strip() for label in labels):
        raise invalid("Expected the names of the classes to look for, got none, or an empty one", path)
    if len(labels) > _MAX_CANDIDATES or max(map(len, labels)) > _MAX_CANDIDATE_LENGTH:
        message = f"Expected at most {_MAX_CANDIDATES} labels of at most {_MAX_CANDIDATE_LENGTH} characters each"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
    for index, label in enumerate(labels):
        check_unicode(label, f"{path}[{index}]")


def select(scores: NDArray[np.float32], labels: Sequence[str], parameters: SelectionParameters) -> list[int]:
    """Return the indices of the selected predictions by descending score, in a stable order; only finite scores."""
    selected = ((scores >= parameters.score_threshold) & np.isfinite(scores)).nonzero()[0]
    if parameters.labels is not None:
        allowed = frozenset(parameters.labels)
        selected = selected[
            np.fromiter((labels[index] in allowed for index in selected.tolist()), np.bool_, len(selected))
        ]
    top_k = parameters.top_k
    if top_k is not None and len(selected) > _PARTITION_FACTOR * top_k:
        # For five of a thousand classes, partitioning is faster than sorting.
        candidates = scores[selected]
        selected = selected[candidates >= np.partition(candidates, -top_k)[-top_k]]
    order = (-scores[selected]).argsort(kind="stable")
    return selected[order[:top_k]].tolist()


def xywh_to_xyxy(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Convert (N, 4) centre x, centre y, width, height to (N, 4) left, top, right, bottom in the same unit."""
    half = boxes[:, 2:4] / np.float32(2)
    # NumPy's functions for joining arrays are one more Python call.
    corners = np.empty((len(boxes), 4), np.float32)
    corners[:, :2], corners[:, 2:] = boxes[:, :2] - half, boxes[:, :2] + half
    return corners


def clip_boxes(boxes: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """Clip (N, 4) xyxy boxes in pixels to a `width` x `height` image."""
    return np.minimum(np.maximum(boxes, 0), np.array([width, height, width, height], np.float32))


def ious(boxes: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (K, M) intersection over union of (K, 4) and (M, 4) xyxy boxes in the same unit."""
    overlap_sides = np.minimum(boxes[:, np.newaxis, 2:], others[:, 2:]) - np.maximum(
        boxes[:, np.newaxis, :2], others[:, :2]
    )
    intersection = np.prod(np.maximum(overlap_sides, 0), axis=2)
    union = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)[:, np.newaxis] + np.prod(others[:, 2:] - others[:, :2], axis=1)
    union -= intersection
    return np.where(union > 0, intersection / np.where(union > 0, union, 1), 0).astype(np.float32)


def rotated_ious(boxes: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (K, M) intersection over union of (K, 5) and (M, 5) cx, cy, w, h, r (radians) boxes in the same unit."""
    radii, other_radii = (np.hypot(part[:, 2], part[:, 3]) / 2 for part in (boxes, others))
    overlaps = np.zeros((len(boxes), len(others)), np.float32)
    distances = np.hypot(*(boxes[:, np.newaxis, :2] - others[:, :2]).transpose(2, 0, 1))
    # Skip boxes whose circumscribed circles do not meet, which are nearly all pairs.
    first, second = np.nonzero(distances < radii[:, np.newaxis] + other_radii)
    intersections = rotated_intersections(boxes[first], others[second])
    unions = np.prod(boxes[first, 2:4], axis=1) + np.prod(others[second, 2:4], axis=1) - intersections
    overlaps[first, second] = np.where(unions > 0, intersections / np.where(unions > 0, unions, 1), 1)
    return overlaps


def rotated_intersections(boxes: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the (N,) areas that N pairs of (N, 5) cx, cy, w, h, r (radians) boxes in the same unit share."""
    return np.concatenate(
        [
            _intersections(boxes[start : start + _PAIRS], others[start : start + _PAIRS])
            for start in range(0, max(1, len(boxes)), _PAIRS)
        ]
    )


def _intersections(boxes: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the (N,) areas that pairs of boxes share, as the integral of x dy along the edges of the other box.

    In the frame of the first box, clamping x and y to the box moves no point inside, and each point outside to a side.
    So the clamped edges enclose just the shared area, also if sides lie on one line.
    """
    first, second = boxes.astype(np.float64), others.astype(np.float64)
    half = first[:, 2:4, np.newaxis, np.newaxis] / 2
    dx, dy = (second[:, :2] - first[:, :2]).T
    cosine, sine = np.cos(first[:, 4]), np.sin(first[:, 4])
    centres = np.stack([dx * cosine + dy * sine, dy * cosine - dx * sine], axis=1)
    angles = second[:, 4] - first[:, 4]
    along = np.stack([np.cos(angles), np.sin(angles)], axis=1) * second[:, 2:3] / 2
    across = np.stack([-np.sin(angles), np.cos(angles)], axis=1) * second[:, 3:4] / 2
    corners = np.stack([centres + x * along + y * across for x, y in _CORNERS], axis=2)
    steps = np.roll(corners, -1, axis=2) - corners
    # Where each edge crosses the lines of the sides, as a fraction of the edge, between its ends.
    sides = np.concatenate([-half, half], axis=3) - corners[..., np.newaxis]
    divisors = steps[..., np.newaxis]
    crossings = np.divide(sides, divisors, out=np.zeros_like(sides), where=divisors != 0)
    fractions = np.zeros((len(first), 1, 4, 6))
    fractions[:, 0, :, 1:3], fractions[:, 0, :, 3:5] = crossings[:, 0], crossings[:, 1]
    fractions[..., 5] = 1
    fractions = np.sort(np.clip(fractions, 0, 1), axis=3)
    x, y = np.clip(corners[..., np.newaxis] + fractions * divisors, -half, half).swapaxes(0, 1)
    return ((x[..., 1:] + x[..., :-1]) * np.diff(y, axis=2)).sum(axis=(1, 2)) / 2


def suppress_boxes(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    class_ids: NDArray[np.intp],
    iou_threshold: float,
    *,
    agnostic: bool = False,
) -> NDArray[np.intp]:
    """Apply non-maximum suppression to (N, 4) xyxy boxes; return the kept indices by descending score.

    A box is dropped if its IoU with a box of its class with a higher score exceeds `iou_threshold`, or if its score is
    0. If `agnostic`, boxes of all classes are compared.
    """
    if len(boxes) < 2:
        return np.arange(len(boxes))
    # Move classes apart so that their boxes do not overlap. OpenCV's batched version is wrong for negative coordinates,
    # which boxes over the border have.
    # The methods of an array call a ufunc through a Python function.
    extent = np.maximum.reduce(boxes, axis=None) - np.minimum.reduce(boxes, axis=None)
    class_offsets = 0.0 if agnostic else class_ids[:, np.newaxis] * (float(extent) + 1.0)
    rectangles = np.empty((len(boxes), 4), np.float64)
    rectangles[:, :2], rectangles[:, 2:] = boxes[:, :2] + class_offsets, boxes[:, 2:] - boxes[:, :2]
    kept = np.asarray(cv2.dnn.NMSBoxes(rectangles, scores, 0.0, iou_threshold), np.intp)  # pyright: ignore
    return kept[(-scores[kept]).argsort(kind="stable")]


def suppress_rotated_boxes(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    class_ids: NDArray[np.intp],
    iou_threshold: float,
    *,
    agnostic: bool = False,
) -> NDArray[np.intp]:
    """Apply Ultralytics' non-maximum suppression to (N, 5) cx, cy, w, h, r (radians) boxes.

    A box is dropped if its probabilistic IoU with a box of its class with a higher score, kept or not, reaches
    `iou_threshold`, or if its score is 0. If `agnostic`, boxes of all classes are compared. Return the kept indices by
    descending score.
    """
    order = (-scores).argsort(kind="stable")
    order = order[scores[order] > 0]
    ranked, classes = boxes[order], class_ids[order]
    kept = np.empty(len(order), np.bool_)
    for start in range(0, len(order), _BLOCK):
        end = start + _BLOCK
        overlap = probabilistic_ious(ranked[:end], ranked[start:end]) >= iou_threshold
        if not agnostic:
            overlap &= classes[:end, np.newaxis] == classes[start:end]
        kept[start:end] = ~np.triu(overlap, 1 - start).any(axis=0)
    return order[kept]


def probabilistic_ious(boxes: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return (K, M) overlaps of (K, 5) and (M, 5) cx, cy, w, h, r (radians) boxes, each taken as a Gaussian (ProbIoU).

    The overlap is 1 minus the Hellinger distance (https://arxiv.org/abs/2106.06072), limited as in Ultralytics.
    """
    first, second = boxes[:, np.newaxis].astype(np.float64), others.astype(np.float64)
    xx, yy, xy = (np.add(*pair) for pair in zip(_covariance(first), _covariance(second), strict=True))
    dx, dy = first[..., 0] - second[..., 0], first[..., 1] - second[..., 1]
    determinant = np.maximum(xx * yy - xy**2, 0)
    distance = (yy * dx**2 + xx * dy**2 - 2 * xy * dx * dy) / (4 * (determinant + _EPSILON))
    areas = np.abs(np.prod(first[..., 2:4], axis=-1) * np.prod(second[..., 2:4], axis=-1))
    distance += np.log(determinant / (areas / 36 + _EPSILON) + _EPSILON) / 2
    return 1 - np.sqrt(1 - np.exp(-np.clip(distance, _EPSILON, 100)) + _EPSILON)


def _covariance(boxes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the variances of x and y, and their covariance, for the Gaussian of each of (..., 5) boxes."""
    along, across = boxes[..., 2] ** 2 / 12, boxes[..., 3] ** 2 / 12
    cosine, sine = np.cos(boxes[..., 4]), np.sin(boxes[..., 4])
    xx, yy = along * cosine**2 + across * sine**2, along * sine**2 + across * cosine**2
    return xx, yy, (along - across) * cosine * sine
