"""Models that follow MAITE's protocols, served like any other class. Its types are structural: it is not needed here.

An ``ImageClassifier`` or ``ObjectDetector`` of MAITE is called with a batch of (channels, height, width) arrays, and
has ``metadata`` with an id and, where it knows them, class names by number.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ("MaiteModel", "is_maite_model")


class MaiteModel:
    """A model of MAITE as a class with ``predict``.

    Args:
        model: follows ``maite.protocols.image_classification.Model`` or ``maite.protocols.object_detection.Model``.

    Attributes:
        labels: class names by class number, from the model's ``index2label``.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        named = cast("Mapping[int, str]", dict(model.metadata).get("index2label") or {})
        self.labels = [named.get(number, str(number)) for number in range(max(named, default=-1) + 1)]

    def predict(self, images: Sequence[NDArray[np.uint8]]) -> object:
        """Answer (H, W, 3) images, which MAITE has as (3, H, W)."""
        return self._model([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images])

    def load(self) -> object:
        """The model's own hook, if it has one."""
        return _hook(self._model, "load")

    def close(self) -> object:
        """The model's own hook, if it has one."""
        return _hook(self._model, "close")


def is_maite_model(target: object) -> bool:
    """Whether an object looks like a model of MAITE, and not like a class with ``predict``."""
    return (
        not hasattr(target, "predict") and callable(target) and isinstance(getattr(target, "metadata", None), Mapping)
    )


def _hook(target: Any, name: str) -> object:
    hook = getattr(target, name, None)
    return hook() if callable(hook) else None
