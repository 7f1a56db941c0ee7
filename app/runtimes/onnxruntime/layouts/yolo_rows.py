"""Read the candidates of YOLO models from rows or columns, and apply the score threshold first."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.candidates import Candidates, best_indices
from app.runtimes.onnxruntime.graph import RawOutputs
from tasks.object_detection import DetectionParameters
from tasks.vision.boxes import suppress_boxes, xywh_to_xyxy

BOX = 4
"""Values of a box."""

MAX_DETECTION_ROWS = 1000
"""An output with more rows contains candidates rather than detections."""

_MAX_CANDIDATES = 30_000
"""Ultralytics' limit for suppression."""


class RowFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The format of one output.

    Attributes:
        suppressed: whether the graph includes non-maximum suppression; a row is then a box, a score and a class.
        transposed: whether unsuppressed candidates are rows rather than columns.
        classes: nc, or None if each row contains a class number.
        objectness: whether an objectness score follows the box.
    """

    suppressed: bool = False
    transposed: bool = False
    classes: int | None = None
    objectness: bool = False


def read_rows(output: NDArray[Any], rows: RowFormat, score_threshold: float, max_count: int) -> Candidates:
    """Read the output of one image.

    Args:
        output: (4 + nc + k, N), transposed (N, 4 + nc + k), with objectness (N, 5 + nc), suppressed (M, 6 + k).
        rows: format of the output.
        score_threshold: candidates with a lower score, 0 or NaN are dropped first.
        max_count: maximum number of candidates; the best are kept.

    Returns:
        Candidates with boxes as in the output: xyxy for suppressed upright boxes, cx, cy, w, h for all others.
    """
    if rows.suppressed:
        return _read_suppressed(output, score_threshold)
    columns = output.T if rows.transposed else output
    first = BOX + rows.objectness
    end = first + (rows.classes or 0)
    # The methods of an array call a ufunc through a Python function.
    best = np.maximum.reduce(columns[first:end], axis=0)
    if rows.objectness:
        best = best * columns[BOX]
    chosen = best_indices(best, score_threshold, max_count)
    picked = columns[:, chosen].astype(np.float32, copy=False)
    return Candidates(
        boxes=np.ascontiguousarray(picked[:BOX].T),
        scores=best[chosen].astype(np.float32, copy=False),
        class_ids=picked[first:end].argmax(axis=0),
        extras=picked[end:].T,
    ).finite()


def find(answer: RawOutputs, parameters: DetectionParameters, *, rows: RowFormat) -> Candidates:
    """Return the upright objects in the first output after suppression; boxes (n, 4) xyxy in input pixels."""
    candidates = read_rows(answer.outputs[0], rows, parameters.score_threshold, _MAX_CANDIDATES)
    return candidates if rows.suppressed else suppress_duplicates(candidates, parameters.iou_threshold)


def suppress_duplicates(candidates: Candidates, iou_threshold: float) -> Candidates:
    """Apply non-maximum suppression to candidates with boxes cx, cy, w, h; return boxes as xyxy."""
    boxes: NDArray[np.float32] = xywh_to_xyxy(candidates.boxes)
    kept = suppress_boxes(boxes, candidates.scores, candidates.class_ids, iou_threshold)
    return Candidates(
        boxes=boxes[kept],
        scores=candidates.scores[kept],
        class_ids=candidates.class_ids[kept],
        extras=candidates.extras[kept],
    )


def _read_suppressed(output: NDArray[Any], score_threshold: float) -> Candidates:
    # Graphs pad the output with rows of zeros.
    chosen = best_indices(output[:, BOX], score_threshold, len(output))
    picked = output[np.sort(chosen)].astype(np.float32, copy=False)
    picked = picked[np.isfinite(picked).all(axis=1)]
    return Candidates(
        boxes=picked[:, :BOX],
        scores=picked[:, BOX],
        class_ids=picked[:, BOX + 1].astype(np.intp),
        extras=picked[:, BOX + 2 :],
    )
