"""Average precision by size of objects, and F1."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.vision.filtering import ious

SIZES = {"small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""Areas in pixels: COCO's."""

Floats = NDArray[np.float32]


class Compared(msgspec.Struct, frozen=True, eq=False):
    """The P predictions for an image and its T objects: `overlaps` (P, T) IoU, 0 for other classes, and areas."""

    overlaps: Floats
    scores: Floats
    areas: Floats
    true_areas: Floats


def compare(
    labels: Sequence[str], scores: Floats, boxes: Floats, true_labels: Sequence[str], truth: Floats
) -> Compared:
    """Compare boxes, (P, 4) xyxy, with the true ones, (T, 4)."""
    same = np.array(labels, object)[:, np.newaxis] == np.array(true_labels, object)
    overlaps = np.where(same, ious(boxes, truth), 0) if same.size else np.zeros(same.shape, np.float32)
    return Compared(overlaps, scores, *(np.prod(rows[:, 2:] - rows[:, :2], axis=1) for rows in (boxes, truth)))


def average_precision(images: Sequence[Compared], size: str) -> float:
    """Return the average precision at an IoU of 0.5 of objects of a size, with COCO's rules, for all classes."""
    low, high = SIZES[size]
    rows: list[tuple[float, bool]] = []
    total = 0
    for image in images:
        inside = (image.true_areas >= low) & (image.true_areas < high)
        total += int(inside.sum())
        for index, match in _matches(image, 0.5):
            if match is None and low <= image.areas[index] < high:
                rows.append((float(image.scores[index]), False))
            elif match is not None and inside[match]:
                rows.append((float(image.scores[index]), True))
    hits = np.cumsum([hit for _, hit in sorted(rows, key=lambda row: -row[0])])
    precision = hits / np.arange(1, len(hits) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    recall = hits / max(total, 1)
    return float(np.mean([best[recall >= point].max(initial=0.0) for point in np.linspace(0, 1, 101)]))


def f1(images: Sequence[Compared], min_iou: float) -> float:
    """Return the F1 of all predictions."""
    matched = sum(match is not None for image in images for _, match in _matches(image, min_iou))
    return 2 * matched / max(sum(len(image.scores) + len(image.true_areas) for image in images), 1)


def _matches(image: Compared, min_iou: float) -> Sequence[tuple[int, int | None]]:
    """Return each prediction, the best first, with the object that it takes."""
    free = np.ones(len(image.true_areas), np.bool_)
    found: list[tuple[int, int | None]] = []
    for index in (-image.scores).argsort(kind="stable").tolist():
        overlaps = np.where(free, image.overlaps[index], -1.0)
        match = int(overlaps.argmax()) if len(overlaps) else 0
        hit = len(overlaps) > 0 and overlaps[match] >= min_iou
        if hit:
            free[match] = False
        found.append((index, match if hit else None))
    return found
