"""Run a model in the calling process, without a server: for tests, notebooks and evaluations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.assembly.discovery import latest_version, model_at
from app.core.assembly.models import load
from app.core.wire.bytes_elements import BinaryElement, StringElement
from tasks.inference.error import invalid
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import Prediction, Record
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor
from tasks.task import TaskType
from tasks.tensor_inference import Tensors

_DATATYPES = {datatype.dtype: datatype for datatype in Datatype if datatype not in (Datatype.BF16, Datatype.BYTES)}
_PILLOW_MODES = frozenset({"1", "CMYK", "HSV", "LA", "LAB", "P", "PA", "YCbCr"})
"""The modes of Pillow images whose numbers are not red, green and blue, nor grey."""


class InProcessModel:
    """The latest version of the model at `path`, loaded in this process.

    Raise ModelError when there is no model, or it cannot be served.

    Args:
        path: a model file, or a model's folder.
        allow_code: whether the model may run its own Python code.
    """

    def __init__(self, path: Path | str, *, allow_code: bool = False) -> None:
        self.source = msgspec.structs.replace(latest_version(model_at(Path(path))), allow_code=allow_code)
        self._servable = load(self.source)
        self.description = self._servable.description

    def predict(self, images: Sequence[ArrayLike], **parameters: object) -> Sequence[Prediction]:
        """Return a prediction for each image; all images go into one call of the model.

        Raise InferenceError when an image or a parameter is invalid, a parameter is unknown, or the model fails.

        Args:
            images: encoded images as bytes; or (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) RGB, uint8 or floating-point
                within 0..1: arrays, or objects that NumPy converts to arrays, such as Pillow images.
            parameters: request parameters, such as ``score_threshold``.
        """
        if self.description.takes == "text":
            raise invalid(
                f"Expected a model of images, got one of {self.description.task_type}; pass a text to ask_text"
            )
        self._servable.check_parameters(parameters)
        return self._predict([_image(f"image-{index}", image, parameters) for index, image in enumerate(images)])

    def ask(self, image: ArrayLike, **parameters: object) -> Sequence[Record]:
        """Return the records for one image; takes the same images and parameters as `predict`.

        Raise InferenceError when the image or a parameter is invalid, a parameter is unknown, or the model fails.
        """
        (prediction,) = self.predict([image], **parameters)
        return prediction.records()

    def ask_text(self, text: str, **parameters: object) -> Sequence[Record]:
        """Return the records for one text, from a text model.

        Raise InferenceError when a parameter is invalid or unknown, or the model fails.
        """
        self._servable.check_parameters(parameters)
        tensor = BytesTensor(name="args", shape=(1,), elements=[StringElement(text)], parameters=parameters)
        return self._predict([tensor])[0].records()

    def run(self, tensors: Mapping[str, ArrayLike]) -> Mapping[str, NDArray[Any]]:
        """Return the output tensors of a model with the task type TENSOR, for numeric input tensors.

        Raise InferenceError when the model has another task type, does not take the tensors, or fails.
        """
        task_type = self.description.task_type
        if task_type is not TaskType.TENSOR:
            raise invalid(f"Expected a model of {TaskType.TENSOR}, got one of {task_type}; pass its input to ask")
        inputs = [_tensor(name, np.asarray(array), {}) for name, array in tensors.items()]
        predictions = [prediction for prediction in self._predict(inputs) if isinstance(prediction, Tensors)]
        return {tensor.name: tensor.data for prediction in predictions for tensor in prediction.tensors}

    def _predict(self, inputs: Sequence[InputTensor]) -> Sequence[Prediction]:
        request = InferenceRequest(id="in-process", model_name=self.source.name, inputs=tuple(inputs))
        outputs = self._servable.predict(request, Limits(max_inputs=max(len(inputs), 1))).outputs
        return [prediction for output in outputs for prediction in output.predictions]


def _image(name: str, image: ArrayLike, parameters: Mapping[str, object]) -> InputTensor:
    if isinstance(image, (bytes, bytearray, memoryview)):
        return BytesTensor(
            name=name, shape=(1,), elements=[BinaryElement(bytes(cast("bytes", image)))], parameters=parameters
        )
    return _tensor(name, _pixels(image), parameters)


def _pixels(image: Any) -> NDArray[Any]:
    """Return an image as an array. Floating-point pixels become float32, a dtype that requests accept."""
    pixels = np.asarray(image.convert("RGB") if getattr(image, "mode", None) in _PILLOW_MODES else image)
    return pixels.astype(np.float32) if pixels.dtype.kind == "f" else pixels


def _tensor(name: str, data: NDArray[Any], parameters: Mapping[str, object]) -> Tensor:
    native = data.astype(data.dtype.newbyteorder("="), copy=False)
    datatype = _DATATYPES.get(native.dtype)
    if datatype is None:
        raise invalid(f"Expected an array of numbers, got one of {data.dtype}", name)
    return Tensor(name=name, datatype=datatype, data=native, parameters=parameters)
