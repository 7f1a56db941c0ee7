"""The rows and columns in which YOLO models propose objects, read with the score threshold before anything else."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.heads.candidates import Candidates, best_of
from tasks.object_detection import DetectionParameters
from tasks.vision.boxes import suppress_boxes, xywh_to_xyxy

__all__ = ("BOX", "MANY", "Rows", "detect", "read_rows", "without_duplicates")

BOX = 4
"""Numbers of a box."""

MANY = 1000
"""More rows than this are candidates rather than detections."""

_MOST_CANDIDATES = 30_000
"""As many as Ultralytics compares with each other."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """How one output is read.

    Attributes:
        suppressed: whether duplicates have been removed inside the graph; a row is then a box, a score and a class.
        transposed: whether candidates are rows rather than columns, when they are not suppressed.
        classes: nc, or None where the rows name a class each.
        objectness: whether a score of there being any object, which multiplies those of the classes, follows the box.
    """

    suppressed: bool = False
    transposed: bool = False
    classes: int | None = None
    objectness: bool = False


def read_rows(output: NDArray[Any], rows: Rows, score_threshold: float, most: int) -> Candidates:
    """Read one picture's output.

    Args:
        output: (4 + nc + k, N), transposed (N, 4 + nc + k), with objectness (N, 5 + nc), suppressed (M, 6 + k).
        rows: which of them it is.
        score_threshold: candidates that score lower, or 0, or not a number, are left out before anything else is done.
        most: at most so many candidates, the best ones.

    Returns:
        Candidates whose boxes are as the output has them: suppressed upright ones xyxy, all others cx, cy, w, h.
    """
    if rows.suppressed:
        return _suppressed(output, score_threshold)
    columns = output.T if rows.transposed else output
    first = BOX + rows.objectness
    end = first + (rows.classes or 0)
    best = columns[first:end].max(axis=0)
    if rows.objectness:
        best = best * columns[BOX]
    chosen = best_of(best, score_threshold, most)
    picked = columns[:, chosen].astype(np.float32, copy=False)
    return Candidates(
        boxes=np.ascontiguousarray(picked[:BOX].T),
        scores=best[chosen].astype(np.float32, copy=False),
        class_ids=picked[first:end].argmax(axis=0),
        extras=picked[end:].T,
    ).finite()


def detect(output: NDArray[Any], rows: Rows, parameters: DetectionParameters) -> Candidates:
    """One picture's upright objects, duplicates removed, their boxes (n, 4) xyxy in input pixels."""
    found = read_rows(output, rows, parameters.score_threshold, _MOST_CANDIDATES)
    return found if rows.suppressed else without_duplicates(found, parameters.iou_threshold)


def without_duplicates(found: Candidates, iou_threshold: float) -> Candidates:
    """Non-maximum suppression of candidates whose boxes are cx, cy, w, h; those that come back are xyxy."""
    boxes: NDArray[np.float32] = xywh_to_xyxy(found.boxes)
    kept = suppress_boxes(boxes, found.scores, found.class_ids, iou_threshold)
    return Candidates(
        boxes=boxes[kept], scores=found.scores[kept], class_ids=found.class_ids[kept], extras=found.extras[kept]
    )


def _suppressed(output: NDArray[Any], score_threshold: float) -> Candidates:
    # Graphs fill up with rows of zeros when there are fewer detections than rows.
    chosen = best_of(output[:, BOX], score_threshold, len(output))
    picked = output[np.sort(chosen)].astype(np.float32, copy=False)
    picked = picked[np.isfinite(picked).all(axis=1)]
    return Candidates(
        boxes=picked[:, :BOX],
        scores=picked[:, BOX],
        class_ids=picked[:, BOX + 1].astype(np.intp),
        extras=picked[:, BOX + 2 :],
    )
