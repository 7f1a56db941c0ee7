"""Present a classifier or detector as a model of MAITE.

MAITE's protocols are structural, so the package ``maite`` is not needed at run time. The objects satisfy
``maite.protocols.image_classification.Model`` and ``maite.protocols.object_detection.Model``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.settings.model import ModelError
from app.public_api.in_process import InProcessModel
from tasks.image_classification import Classification
from tasks.inference.error import invalid
from tasks.inference.response import Prediction
from tasks.object_detection import Detections
from tasks.task import TaskType

if TYPE_CHECKING:
    from maite.protocols import ModelMetadata


class MaiteTarget(msgspec.Struct, frozen=True, eq=False):
    """MAITE's ``ObjectDetectionTarget``.

    Attributes:
        boxes: (N, 4) float32, left, top, right, bottom in pixels.
        labels: (N,) int64 class indices.
        scores: (N,) float32.
    """

    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    scores: NDArray[np.float32]


class _MaiteModel:
    """The base class of classifiers and detectors; `parameters` are sent with every call.

    Attributes:
        metadata: the model's name as ``id``, and the class names by index as ``index2label``.
    """

    metadata: "ModelMetadata"

    def __init__(self, model: InProcessModel, parameters: dict[str, object]) -> None:
        labels = list(model.description.labels)
        self.metadata = {"id": model.source.name, "index2label": dict(enumerate(labels))}
        self._model = model
        self._parameters = parameters
        self._class_indices = {label: class_index for class_index, label in reversed([*enumerate(labels)])}

    def _predictions(self, batch: Sequence[Any]) -> Sequence[Prediction]:
        images = [np.asarray(image) for image in batch]
        if (shape := next((image.shape for image in images if image.ndim != 3), None)) is not None:
            raise invalid(f"Expected images of shape (channels, height, width), got {shape}")
        images = [np.ascontiguousarray(image.transpose(1, 2, 0)) for image in images]
        return self._model.predict(images, **self._parameters)

    def _class_index(self, label: str) -> int:
        class_index = self._class_indices.get(label)
        if class_index is None and label.isdecimal() and not self._class_indices:
            return int(label)
        if class_index is None:
            raise ValueError(
                f"{self._model.source.name}: {label!r} is not among the model's labels and has no class index; "
                "declare labels in model-settings.json"
            )
        return class_index


class MaiteClassifier(_MaiteModel):
    """An image classifier: takes a batch of (C, H, W) images, returns for each an array of scores by class index."""

    def __call__(self, batch: Sequence[Any], /) -> Sequence[NDArray[np.float32]]:
        predictions = self._predictions(batch)
        return [self._scores(prediction) for prediction in predictions if isinstance(prediction, Classification)]

    def _scores(self, classification: Classification) -> NDArray[np.float32]:
        labels = self._model.description.labels
        class_indices = [
            class_index if class_index < len(labels) and labels[class_index] == label else self._class_index(label)
            for label, class_index in zip(classification.labels, classification.class_ids or (), strict=True)
        ]
        scores = np.zeros(max([len(labels), *(class_index + 1 for class_index in class_indices)]), np.float32)
        scores[class_indices] = classification.scores
        return scores


class MaiteDetector(_MaiteModel):
    """An object detector: takes a batch of (C, H, W) images, returns a target for each."""

    def __call__(self, batch: Sequence[Any], /) -> Sequence[MaiteTarget]:
        return [
            self._target(prediction) for prediction in self._predictions(batch) if isinstance(prediction, Detections)
        ]

    def _target(self, detections: Detections) -> MaiteTarget:
        class_indices = np.array([self._class_index(label) for label in detections.labels], np.int64)
        return MaiteTarget(boxes=detections.boxes, labels=class_indices, scores=detections.scores)


def as_maite(path: Path | str, *, allow_code: bool = False, **parameters: object) -> MaiteClassifier | MaiteDetector:
    """Return the classifier or detector at `path`, of any runtime, as a MAITE model that runs in this process.

    Raise ModelError when it cannot be served, or has another task type.

    Args:
        path: a model file, or a model's folder.
        allow_code: whether the model may run its own Python code.
        parameters: sent with every call. A detector's ``score_threshold`` is 0 by default, because metrics need every
            detection.
    """
    model = InProcessModel(path, allow_code=allow_code)
    match model.description.task_type:
        case TaskType.IMAGE_CLASSIFICATION:
            return MaiteClassifier(model, parameters)
        case TaskType.OBJECT_DETECTION:
            return MaiteDetector(model, {"score_threshold": 0.0, **parameters})
        case other:
            raise ModelError(f"{path}: MAITE has no models of the task {other}; it has classifiers and detectors")
