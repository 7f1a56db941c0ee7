"""Serve models that follow MAITE's protocols. These are structural types, so MAITE is not a dependency.

A MAITE ``ImageClassifier`` or ``ObjectDetector`` is called with a batch of (channels, height, width) arrays. Its
``metadata`` has an id and, optionally, class names by number.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray


class MaiteModel:
    """Adapts a MAITE model to a class with ``predict``.

    Args:
        model: follows ``maite.protocols.image_classification.Model`` or ``maite.protocols.object_detection.Model``.

    Attributes:
        labels: class names by class number, from the model's ``index2label``.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        names = cast("Mapping[int, str]", dict(model.metadata).get("index2label") or {})
        self.labels = [names.get(number, str(number)) for number in range(max(names, default=-1) + 1)]

    def predict(self, images: Sequence[NDArray[np.uint8]]) -> object:
        """Call the model with (H, W, 3) images, transposed to MAITE's (3, H, W)."""
        return self._model([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images])

    def load(self) -> object:
        """Call the model's own ``load``, if it exists."""
        return _hook(self._model, "load")

    def close(self) -> object:
        """Call the model's own ``close``, if it exists."""
        return _hook(self._model, "close")


def is_maite_model(target: object) -> bool:
    """Return whether an object follows MAITE's protocols and has no ``predict``."""
    return (
        not hasattr(target, "predict") and callable(target) and isinstance(getattr(target, "metadata", None), Mapping)
    )


def _hook(target: Any, name: str) -> object:
    hook = getattr(target, name, None)
    return hook() if callable(hook) else None
