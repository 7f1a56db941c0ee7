"""The objects a graph proposes for one picture, before and after duplicates are removed."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Candidates", "best_of", "class_pairs", "fractions_to_xyxy", "sigmoid")


class Candidates(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Objects in the frame of the model's input.

    Attributes:
        boxes: (n, 4) float32, input pixels, xyxy unless said otherwise; rotated ones (n, 5) cx, cy, w, h, r.
        scores: (n,) float32, finite.
        class_ids: (n,) class numbers.
        extras: (n, k) float32: the rotation in radians, mask coefficients, or the query's number; k is 0 for none.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    class_ids: NDArray[np.intp]
    extras: NDArray[np.float32]

    def take(self, indices: NDArray[np.intp]) -> "Candidates":
        """Those at `indices`, in that order."""
        return Candidates(
            boxes=self.boxes[indices],
            scores=self.scores[indices],
            class_ids=self.class_ids[indices],
            extras=self.extras[indices],
        )

    def finite(self) -> "Candidates":
        """Those of numbers that are finite."""
        sound = np.isfinite(self.boxes).all(axis=1) & np.isfinite(self.scores)
        sound &= np.isfinite(self.extras).all(axis=1)
        return self if sound.all() else self.take(np.flatnonzero(sound))


def best_of(scores: NDArray[Any], score_threshold: float, most: int) -> NDArray[np.intp]:
    """Indices of at most so many of the (n,) scores, those over 0 that reach the threshold; NaN reaches none.

    Raises:
        InferenceError: MODEL_FAILED when none of them is a number: that is a broken model, and not an empty picture.
    """
    if scores.size and np.isnan(scores).all():
        raise InferenceError(ErrorKind.MODEL_FAILED, "The model answered with scores of which none is a number")
    chosen = np.flatnonzero((scores >= score_threshold) & (scores > 0))
    if len(chosen) > most:
        chosen = chosen[np.argpartition(-scores[chosen], most)[:most]]
    return chosen


def class_pairs(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], score_threshold: float, most: int
) -> Candidates:
    """Each query with each of its classes that scores enough, best first, as DETR's descendants without NMS answer.

    Args:
        boxes: (queries, 4) xyxy in input pixels.
        scores: (queries, classes), 0..1.
        score_threshold: pairs that score lower are left out.
        most: at most so many pairs, the best ones.

    Returns:
        Candidates whose extras are the number of the query each came from.
    """
    # A query whose box is none must not take the place of one that has a box.
    flat = np.where(np.isfinite(boxes).all(axis=1, keepdims=True), scores, np.float32(0)).ravel()
    chosen = best_of(flat, score_threshold, most)
    chosen = chosen[np.argsort(-flat[chosen], kind="stable")]
    queries, class_ids = np.divmod(chosen, max(scores.shape[1], 1))
    return Candidates(
        boxes=boxes[queries],
        scores=flat[chosen].astype(np.float32, copy=False),
        class_ids=class_ids,
        extras=queries[:, np.newaxis].astype(np.float32),
    )


def fractions_to_xyxy(boxes: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """(n, 4) centre x, centre y, width, height as fractions of the input, to xyxy in input pixels."""
    half = boxes[:, 2:4] / np.float32(2)
    corners = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1, dtype=np.float32)
    return corners * np.array([width, height, width, height], np.float32)


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float32]:
    """Logits to probabilities; tanh does not overflow where exp would."""
    return (np.tanh(logits.astype(np.float32, copy=False) * np.float32(0.5)) + np.float32(1)) * np.float32(0.5)
