"""Run a model in the calling process, without a server: for tests, notebooks and evaluations.

A classifier or detector can be presented as a model of MAITE. MAITE's protocols are structural, so the package
``maite`` is not needed at run time. The objects satisfy ``maite.protocols.image_classification.Model`` and
``maite.protocols.object_detection.Model``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.assembly.discovery import latest_version, model_at
from app.core.assembly.models import load
from app.core.settings.model import ModelError
from app.core.wire.bytes_elements import StringElement
from tasks.image_classification import Classification
from tasks.inference.error import invalid
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import Prediction, Record
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor
from tasks.object_detection import Detections
from tasks.task import TaskType
from tasks.tensor_inference import Tensors

if TYPE_CHECKING:
    from maite.protocols import ModelMetadata


_DATATYPES = {datatype.dtype: datatype for datatype in Datatype if datatype not in (Datatype.BF16, Datatype.BYTES)}


class InProcessModel:
    """The latest version of the model at `path`, loaded in this process.

    Args:
        path: a model file, or a model's folder.
        allow_code: whether the model may run its own Python code.

    Raises:
        ModelError: when there is no model, or it cannot be served.
    """

    def __init__(self, path: Path | str, *, allow_code: bool = False) -> None:
        self.source = msgspec.structs.replace(latest_version(model_at(Path(path))), allow_code=allow_code)
        self._servable = load(self.source)
        self.description = self._servable.description

    def predict(self, images: Sequence[ArrayLike], **parameters: object) -> Sequence[Prediction]:
        """Return a prediction for each image; all images go into one call of the model.

        Args:
            images: (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) RGB, uint8 or floating-point within 0..1; arrays, or
                objects that NumPy converts to arrays, such as Pillow images.
            parameters: request parameters, such as ``score_threshold``.

        Raises:
            InferenceError: when an image or a parameter is invalid, a parameter is unknown, or the model fails.
        """
        self._servable.check_parameters(parameters)
        inputs = [_tensor(f"image-{index}", _pixels(image), parameters) for index, image in enumerate(images)]
        return self._predict(inputs)

    def ask(self, image: ArrayLike, **parameters: object) -> Sequence[Record]:
        """Return the records for one image; takes the same images and parameters as `predict`.

        Raises:
            InferenceError: when the image or a parameter is invalid, a parameter is unknown, or the model fails.
        """
        (prediction,) = self.predict([image], **parameters)
        return prediction.records()

    def ask_text(self, text: str, **parameters: object) -> Sequence[Record]:
        """Return the records for one text, from a text model.

        Raises:
            InferenceError: when a parameter is invalid or unknown, or the model fails.
        """
        self._servable.check_parameters(parameters)
        tensor = BytesTensor(name="args", shape=(1,), elements=[StringElement(text)], parameters=parameters)
        return self._predict([tensor])[0].records()

    def run(self, tensors: Mapping[str, ArrayLike]) -> Mapping[str, NDArray[Any]]:
        """Return the output tensors of a model with the task type TENSOR, for numeric input tensors.

        Raises:
            InferenceError: when the model has another task type, does not take the tensors, or fails.
        """
        task_type = self.description.task_type
        if task_type is not TaskType.TENSOR:
            raise invalid(f"Expected a model of {TaskType.TENSOR}, got one of {task_type}; pass its input to ask")
        inputs = [_tensor(name, np.asarray(array), {}) for name, array in tensors.items()]
        return {
            tensor.name: tensor.data
            for prediction in self._predict(inputs)
            if isinstance(prediction, Tensors)
            for tensor in prediction.tensors
        }

    def _predict(self, inputs: Sequence[InputTensor]) -> Sequence[Prediction]:
        request = InferenceRequest(id="in-process", model_name=self.source.name, inputs=tuple(inputs))
        outputs = self._servable.predict(request, Limits(max_inputs=max(len(inputs), 1))).outputs
        return [prediction for output in outputs for prediction in output.predictions]


def _pixels(image: ArrayLike) -> NDArray[Any]:
    """Return an image as an array. Floating-point pixels become float32, a dtype that requests accept."""
    pixels = np.asarray(image)
    return pixels.astype(np.float32) if pixels.dtype.kind == "f" else pixels


def _tensor(name: str, data: NDArray[Any], parameters: Mapping[str, object]) -> Tensor:
    native = data.astype(data.dtype.newbyteorder("="), copy=False)
    datatype = _DATATYPES.get(native.dtype)
    if datatype is None:
        raise invalid(f"Expected an array of numbers, got one of {data.dtype}", name)
    return Tensor(name=name, datatype=datatype, data=native, parameters=parameters)


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
        images = [np.ascontiguousarray(np.asarray(image).transpose(1, 2, 0)) for image in batch]
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
        """Return the scores of each image."""
        return [
            self._scores(prediction)
            for prediction in self._predictions(batch)
            if isinstance(prediction, Classification)
        ]

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
        """Return the objects in each image."""
        return [
            self._target(prediction) for prediction in self._predictions(batch) if isinstance(prediction, Detections)
        ]

    def _target(self, detections: Detections) -> MaiteTarget:
        class_indices = np.array([self._class_index(label) for label in detections.labels], np.int64)
        return MaiteTarget(boxes=detections.boxes, labels=class_indices, scores=detections.scores)


def as_maite(path: Path | str, *, allow_code: bool = False, **parameters: object) -> MaiteClassifier | MaiteDetector:
    """Return the classifier or detector at `path`, of any runtime, as a MAITE model that runs in this process.

    Args:
        path: a model file, or a model's folder.
        allow_code: whether the model may run its own Python code.
        parameters: sent with every call. A detector's ``score_threshold`` is 0 by default, because metrics need every
            detection.

    Raises:
        ModelError: when it cannot be served, or has another task type.
    """
    model = InProcessModel(path, allow_code=allow_code)
    match model.description.task_type:
        case TaskType.IMAGE_CLASSIFICATION:
            return MaiteClassifier(model, parameters)
        case TaskType.OBJECT_DETECTION:
            return MaiteDetector(model, {"score_threshold": 0.0, **parameters})
        case other:
            raise ModelError(f"{path}: MAITE has no models of the task {other}; it has classifiers and detectors")
