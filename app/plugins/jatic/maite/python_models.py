"""Serve Python classes that follow MAITE's protocols. Both are structural types, so MAITE is not needed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.python.outputs.value_parsing import array
from tasks.task import TaskType


def adapt(target: object) -> object:
    """Return an object with ``predict`` for one that follows MAITE's protocols, and any other unchanged."""
    metadata = getattr(target, "metadata", None)
    follows = not hasattr(target, "predict") and callable(target) and isinstance(metadata, Mapping)
    return _MaiteModel(target) if follows else target


class _MaiteModel:
    """Adapts an ``ImageClassifier`` or ``ObjectDetector`` to a class with ``predict``.

    They are called with a batch of (channels, height, width) arrays. Their ``metadata`` has an id and, optionally,
    class names by number.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.load, self.close = getattr(model, "load", None), getattr(model, "close", None)
        self.labels = dict(model.metadata).get("index2label")

    def predict(self, images: Sequence[NDArray[np.uint8]]) -> object:
        """Call the model with (H, W, 3) images, transposed to MAITE's (3, H, W)."""
        return self._model([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images])


def own_scores(answer: Any, path: str, _: TaskType) -> object:
    """Return a detection target whose (N, C) scores of all classes are those of its labels, and others unchanged."""
    if any(not hasattr(answer, name) for name in ("boxes", "labels", "scores")):
        return answer
    scores, numbers = array(answer.scores, f"{path}.scores"), array(answer.labels, f"{path}.labels")
    is_numbered = numbers.dtype.kind in "iu" and scores.ndim == 2 and numbers.shape == scores.shape[:1]
    if not is_numbered or (numbers.size and not 0 <= numbers.min() <= numbers.max() < scores.shape[1]):
        return answer
    return {"boxes": answer.boxes, "labels": numbers, "scores": scores[np.arange(len(numbers)), numbers]}
