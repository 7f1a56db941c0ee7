"""The objects in the outputs of a detector: choose the best candidates, and suppress duplicates.

The letters in shapes are those of `layout`.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from tasks.inference.error import model_failed
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.vision.filtering import (
    MAX_BOXES,
    MAX_ORIENTED_BOXES,
    suppress_boxes,
    suppress_rotated_boxes,
    xywh_to_xyxy,
)

ALL_NAN = "The model returned scores that are all NaN"

BOX_VALUES = 4
"""Values of a box."""

DETECTION_VALUES = 6
"""Columns of a suppressed row: box, score, class."""


class Candidates(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Objects in the coordinates of the model's input.

    Attributes:
        boxes: (n, 4) float32 xyxy in input pixels unless documented otherwise; oriented boxes (n, 5) cx, cy, w, h, r.
        scores: (n,) float32, finite.
        class_ids: (n,) class numbers.
        extras: (n, k) float32: the angle in radians, mask coefficients, or the query number; k may be 0.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    class_ids: NDArray[np.intp]
    extras: NDArray[np.float32]

    def select(self, indices: NDArray[np.intp]) -> "Candidates":
        """Return the candidates at `indices`, in that order."""
        return Candidates(**{name: values[indices] for name, values in msgspec.structs.asdict(self).items()})

    def finite(self) -> "Candidates":
        """Return the candidates whose values are all finite."""
        # The methods of an array call a ufunc through a Python function.
        every = np.logical_and.reduce
        valid = every(np.isfinite(self.boxes), axis=1) & np.isfinite(self.scores)
        valid &= every(np.isfinite(self.extras), axis=1)
        return self if every(valid) else self.select(valid.nonzero()[0])

    def suppress(self, parameters: DetectionParameters) -> "Candidates":
        """Return the candidates, upright boxes, without those that overlap a better one."""
        boxes, scores, class_ids, agnostic = self.boxes, self.scores, self.class_ids, parameters.agnostic
        return self.select(suppress_boxes(boxes, scores, class_ids, parameters.iou_threshold, agnostic=agnostic))


FindObjects = Callable[[RawOutputs, DetectionInput], Candidates]
"""Returns the objects of one image after suppression."""


def best_indices(scores: NDArray[Any], floor: float, max_count: int) -> NDArray[np.intp]:
    """Return the indices of the best (n,) scores, at most `max_count`, that are positive and reach `floor`.

    Raise MODEL_FAILED if all scores are NaN, which shows a broken model and not an empty image.
    """
    if scores.size and np.logical_and.reduce(np.isnan(scores), axis=None):
        raise model_failed(ALL_NAN)
    chosen = ((scores >= floor) & (scores > 0)).nonzero()[0]
    if len(chosen) > max_count:
        chosen = chosen[np.argpartition(-scores[chosen], max_count)[:max_count]]
    return chosen


def best_of_rows(boxes: NDArray[Any], scores: NDArray[Any], floor: float, max_count: int = MAX_BOXES) -> Candidates:
    """Return the best boxes (N, 4), in their coordinates, each with the class of its best score (N, classes)."""
    best = scores.max(axis=1, initial=0)
    chosen = best_indices(best, floor, max_count)
    return Candidates(
        boxes=boxes[chosen].astype(np.float32, copy=False),
        scores=best[chosen].astype(np.float32, copy=False),
        class_ids=scores[chosen].argmax(axis=1),
        extras=np.zeros((len(chosen), 0), np.float32),
    ).finite()


def read_suppressed(answer: RawOutputs, item: DetectionInput, *, oriented: bool) -> Candidates:
    """Return the objects of a graph that includes suppression: rows (M, 6 + k) of a box, a score and a class."""
    output: NDArray[Any] = answer.outputs[0]
    # Graphs pad the output with rows of zeros.
    chosen = best_indices(output[:, BOX_VALUES], item.floor, len(output))
    rows = output[np.sort(chosen)].astype(np.float32, copy=False)
    rows = rows[np.isfinite(rows).all(axis=1)]
    boxes, extras = rows[:, :BOX_VALUES], rows[:, DETECTION_VALUES:]
    return Candidates(
        boxes=np.concatenate([boxes, extras], axis=1) if oriented else boxes,
        scores=rows[:, BOX_VALUES],
        class_ids=rows[:, BOX_VALUES + 1].astype(np.intp),
        extras=extras,
    )


def find_candidates(
    answer: RawOutputs,
    item: DetectionInput,
    *,
    classes: int,
    transposed: bool = False,
    objectness: bool = False,
    oriented: bool = False,
) -> Candidates:
    """Return the best of the candidates (4 + nc + k, N) after suppression; upright boxes as xyxy.

    `transposed` candidates are (N, 4 + nc + k). An `objectness` score may follow the box, and the angle of an
    `oriented` box follows the scores. Candidates with a score under the floor, 0 or NaN are dropped first.
    """
    columns: NDArray[Any] = answer.outputs[0].T if transposed else answer.outputs[0]
    first = BOX_VALUES + objectness
    end = first + classes
    # The methods of an array call a ufunc through a Python function.
    best = np.maximum.reduce(columns[first:end], axis=0)
    if objectness:
        best = best * columns[BOX_VALUES]
    chosen = best_indices(best, item.floor, MAX_ORIENTED_BOXES if oriented else MAX_BOXES)
    picked = columns[:, chosen].astype(np.float32, copy=False)
    candidates = Candidates(
        boxes=np.ascontiguousarray(picked[:BOX_VALUES].T),
        scores=best[chosen].astype(np.float32, copy=False),
        class_ids=picked[first:end].argmax(axis=0),
        extras=picked[end:].T,
    ).finite()
    if oriented:
        boxes, suppress = np.concatenate([candidates.boxes, candidates.extras], axis=1), suppress_rotated_boxes
    else:
        boxes, suppress = xywh_to_xyxy(candidates.boxes), suppress_boxes
    kept = suppress(
        boxes, candidates.scores, candidates.class_ids, item.parameters.iou_threshold, agnostic=item.parameters.agnostic
    )
    return Candidates(
        boxes=boxes[kept],
        scores=candidates.scores[kept],
        class_ids=candidates.class_ids[kept],
        extras=candidates.extras[kept],
    )
