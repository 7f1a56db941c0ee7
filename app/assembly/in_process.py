"""A model that answers in the calling process, without a server: for a model's own tests, notebooks and evaluations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.assembly.discovery import model_at
from app.assembly.models import load
from app.engine.registry import version_order
from app.protocols.bytes_elements import StringElement
from tasks.exchange.error import invalid
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import Prediction, Record
from tasks.exchange.tensor import BytesTensor, Datatype, Tensor
from tasks.tensor_inference import Tensors

__all__ = ("InProcessModel",)

_DATATYPES = {each.dtype: each for each in Datatype if each not in (Datatype.BF16, Datatype.BYTES)}


class InProcessModel:
    """The latest version of the model at `path`, loaded.

    Args:
        path: a model file, or a model's folder.
        allow_code: whether the model may run Python code of its own.

    Attributes:
        source: where it comes from.
        description: what it is.

    Raises:
        ModelError: when there is none, or it cannot be served.
    """

    def __init__(self, path: Path, *, allow_code: bool = False) -> None:
        latest = max(model_at(path), key=lambda each: version_order(each.version))
        self.source = msgspec.structs.replace(latest, allow_code=allow_code)
        self._servable = load(self.source)
        self.description = self._servable.description

    def predict(self, images: Sequence[ArrayLike], **parameters: object) -> Sequence[Prediction]:
        """The prediction for each image, all in one call of the model.

        Args:
            images: (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) RGB, uint8 or floating-point within 0..1; arrays, or what
                NumPy makes them of, such as Pillow's images.
            parameters: of the request, such as ``score_threshold``.

        Raises:
            InferenceError: for images or parameters that cannot be read, or a model that failed.
        """
        inputs = tuple(_tensor(f"image-{index}", _pixels(image), parameters) for index, image in enumerate(images))
        request = InferenceRequest(id="in-process", model_name=self.source.name, inputs=inputs)
        outputs = self._servable.answer(request, Limits(max_inputs=max(len(images), 1))).outputs
        return [prediction for output in outputs for prediction in output.predictions]

    def ask(self, image: ArrayLike, **parameters: object) -> Sequence[Record]:
        """The records for one image, as `predict` has images and parameters.

        Raises:
            InferenceError: for an image or parameters that cannot be read, or a model that failed.
        """
        (prediction,) = self.predict([image], **parameters)
        return prediction.records()

    def ask_text(self, text: str, **parameters: object) -> Sequence[Record]:
        """The records for one text, by a model of text.

        Raises:
            InferenceError: for parameters that cannot be read, or a model that failed.
        """
        tensor = BytesTensor(name="args", shape=(1,), elements=[StringElement(text)], parameters=parameters)
        request = InferenceRequest(id="in-process", model_name=self.source.name, inputs=(tensor,))
        (output,) = self._servable.answer(request, Limits()).outputs
        return output.predictions[0].records()

    def run(self, tensors: Mapping[str, ArrayLike]) -> Mapping[str, NDArray[Any]]:
        """The output tensors of a model of the task TENSOR, for numeric input tensors.

        Raises:
            InferenceError: for tensors that the model does not take, or a model that failed.
        """
        inputs = tuple(_tensor(name, np.asarray(array), {}) for name, array in tensors.items())
        request = InferenceRequest(id="in-process", model_name=self.source.name, inputs=inputs)
        (output,) = self._servable.answer(request, Limits()).outputs
        return {
            tensor.name: tensor.data
            for prediction in output.predictions
            if isinstance(prediction, Tensors)
            for tensor in prediction.tensors
        }


def _pixels(image: ArrayLike) -> NDArray[Any]:
    """An image of any library; floating-point pixels in one of the formats that a request may have them in."""
    pixels = np.asarray(image)
    return pixels.astype(np.float32) if pixels.dtype.kind == "f" else pixels


def _tensor(name: str, data: NDArray[Any], parameters: Mapping[str, object]) -> Tensor:
    native = data.astype(data.dtype.newbyteorder("="), copy=False)
    datatype = _DATATYPES.get(native.dtype)
    if datatype is None:
        raise invalid(f"Expected an array of numbers, got one of {data.dtype}", name)
    return Tensor(name=name, datatype=datatype, data=native, parameters=parameters)
