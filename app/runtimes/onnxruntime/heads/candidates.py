"""The objects a graph proposes for one picture, before and after duplicates are removed."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.layout import Layout

__all__ = ("Candidates", "read_candidates")

_BOX = 4


class Candidates(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Objects in the frame of the model's input.

    Attributes:
        boxes: (n, 4) float32, input pixels; cx, cy, w, h in the raw and all rotated layouts, xyxy in the others.
        scores: (n,) float32, finite.
        class_ids: (n,) class numbers.
        extras: (n, k) float32: the rotation in radians, or mask coefficients; k is 0 for plain boxes.
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


def read_candidates(output: NDArray[Any], layout: Layout, score_threshold: float, most: int) -> Candidates:
    """Read one picture's output, in any layout but a classifier's.

    Args:
        output: (4 + nc + k, N) raw, (N, 4 + nc + k) raw-transposed, (M, 6 + k) otherwise.
        layout: which of them it is.
        score_threshold: candidates that score lower, or 0, or not a number, are left out before anything else is done.
        most: at most so many candidates, the best ones.
    """
    if layout.suppressed:
        return _rows(output, score_threshold)
    columns = output.T if layout.transposed else output
    classes = layout.classes or 0
    all_scores = columns[_BOX : _BOX + classes]
    best = all_scores.max(axis=0)
    chosen = _best(best, score_threshold, most)
    picked = columns[:, chosen].astype(np.float32, copy=False)
    return _finite(
        Candidates(
            boxes=np.ascontiguousarray(picked[:_BOX].T),
            scores=best[chosen].astype(np.float32, copy=False),
            class_ids=picked[_BOX : _BOX + classes].argmax(axis=0),
            extras=picked[_BOX + classes :].T,
        )
    )


def _rows(output: NDArray[Any], score_threshold: float) -> Candidates:
    # Graphs fill up with rows of zeros when there are fewer detections than rows.
    chosen = _best(output[:, _BOX], score_threshold, len(output))
    picked = output[np.sort(chosen)].astype(np.float32, copy=False)
    picked = picked[np.isfinite(picked).all(axis=1)]
    return Candidates(
        boxes=picked[:, :_BOX],
        scores=picked[:, _BOX],
        class_ids=picked[:, _BOX + 1].astype(np.intp),
        extras=picked[:, _BOX + 2 :],
    )


def _best(scores: NDArray[Any], score_threshold: float, most: int) -> NDArray[np.intp]:
    chosen = np.flatnonzero((scores >= score_threshold) & (scores > 0))
    if len(chosen) > most:
        chosen = chosen[np.argpartition(-scores[chosen], most)[:most]]
    return chosen


def _finite(candidates: Candidates) -> Candidates:
    sound = np.isfinite(candidates.boxes).all(axis=1) & np.isfinite(candidates.scores)
    sound &= np.isfinite(candidates.extras).all(axis=1)
    return candidates if sound.all() else candidates.take(np.flatnonzero(sound))
