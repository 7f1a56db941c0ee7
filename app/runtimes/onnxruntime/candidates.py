"""Candidate objects of one image, before and after suppression."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import ErrorKind, InferenceError


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
        return Candidates(
            boxes=self.boxes[indices],
            scores=self.scores[indices],
            class_ids=self.class_ids[indices],
            extras=self.extras[indices],
        )

    def finite(self) -> "Candidates":
        """Return the candidates whose values are all finite."""
        # The methods of an array call a ufunc through a Python function.
        every = np.logical_and.reduce
        valid = every(np.isfinite(self.boxes), axis=1) & np.isfinite(self.scores)
        valid &= every(np.isfinite(self.extras), axis=1)
        return self if every(valid) else self.select(valid.nonzero()[0])


def best_indices(scores: NDArray[Any], score_threshold: float, max_count: int) -> NDArray[np.intp]:
    """Return the indices of the best (n,) scores, at most `max_count`, that are positive and reach the threshold.

    Raises:
        InferenceError: MODEL_FAILED if all scores are NaN, which shows a broken model and not an empty image.
    """
    if scores.size and np.logical_and.reduce(np.isnan(scores), axis=None):
        raise InferenceError(ErrorKind.MODEL_FAILED, "The model returned scores that are all NaN")
    chosen = ((scores >= score_threshold) & (scores > 0)).nonzero()[0]
    if len(chosen) > max_count:
        chosen = chosen[np.argpartition(-scores[chosen], max_count)[:max_count]]
    return chosen


def class_pairs(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], score_threshold: float, max_pairs: int
) -> Candidates:
    """Return the best pairs of query and class, best first, as DETR models without suppression do.

    Args:
        boxes: (queries, 4) xyxy in input pixels.
        scores: (queries, classes) in 0..1.
        score_threshold: pairs with a lower score are dropped.
        max_pairs: maximum number of pairs; the best are kept.

    Returns:
        Candidates with the query number in `extras`.
    """
    # A query with an invalid box must not displace a valid one.
    flat = np.where(np.isfinite(boxes).all(axis=1, keepdims=True), scores, np.float32(0)).ravel()
    chosen = best_indices(flat, score_threshold, max_pairs)
    chosen = chosen[(-flat[chosen]).argsort(kind="stable")]
    queries, class_ids = np.divmod(chosen, max(scores.shape[1], 1))
    return Candidates(
        boxes=boxes[queries],
        scores=flat[chosen].astype(np.float32, copy=False),
        class_ids=class_ids,
        extras=queries[:, np.newaxis].astype(np.float32),
    )


def fractions_to_xyxy(boxes: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """Convert (n, 4) boxes cx, cy, w, h as fractions of the input to xyxy in input pixels."""
    half = boxes[:, 2:4] / np.float32(2)
    corners = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1, dtype=np.float32)
    return corners * np.array([width, height, width, height], np.float32)


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float32]:
    """Convert logits to probabilities with tanh, which does not overflow as exp does."""
    return (np.tanh(logits.astype(np.float32, copy=False) * np.float32(0.5)) + np.float32(1)) * np.float32(0.5)
