"""TENSOR: run a model on tensors or images, and return its output tensors."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor, Datatype, Element, InputTensor, Tensor, TensorSpec
from tasks.task import InputGroup, TaskType
from tasks.vision.image import Image
from tasks.vision.request import IMAGE_INPUT, PixelBudget, check_count, read_images


class TensorRecord(msgspec.Struct, frozen=True):
    """One output tensor: row-major `data`, BYTES elements as text, or as ``{"b64": "<base64>"}`` if not UTF-8."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


class Tensors(msgspec.Struct, frozen=True, eq=False):
    """The output tensors of one call."""

    tensors: Sequence[Tensor]

    def records(self) -> list[TensorRecord]:
        """Return one `TensorRecord` for each tensor. Numbers that are not finite become null in JSON."""
        records: list[TensorRecord] = []
        for tensor in self.tensors:
            values = tensor.values.ravel().tolist()
            data = [text_or_base64(value) for value in values] if tensor.data.dtype == object else values
            records.append(TensorRecord(tensor.name, tensor.datatype, list(tensor.shape), data))
        return records

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return the tensors of the only prediction: several have no common batch dimension (ValueError)."""
        (prediction,) = predictions
        return prediction.tensors


class ImageTensors(Tensors, frozen=True, eq=False):
    """The output tensors for one image, without a batch dimension."""

    @classmethod
    def stack(cls, predictions: Sequence[Tensors], /) -> Sequence[Tensor]:
        """Return each output with the images first. Raise UNSUPPORTED if its shape differs between images."""
        return [_stacked(tensors) for tensors in zip(*(prediction.tensors for prediction in predictions), strict=True)]


class TensorsInput(msgspec.Struct, frozen=True, eq=False):
    """The input tensors of one call, by name.

    BYTES are object arrays of `str`. For a model that accepts binary data, elements that are not UTF-8 are `bytes`.
    """

    tensors: Mapping[str, NDArray[Any]]


class ImageTensorInput(msgspec.Struct, frozen=True, eq=False):
    """One image."""

    image: Image


class NoParameters(msgspec.Struct, frozen=True):
    """The task has no parameters."""


class TensorInference:
    """Check tensors against the model's declared inputs, in which -1 is any size, and pass them on.

    `binary` says whether the model accepts BYTES elements that are not UTF-8.
    """

    task_type = TaskType.TENSOR
    parameters_type = NoParameters

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], *, binary: bool = False) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._binary = binary
        self._specs = {spec.name: spec for spec in inputs}

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[TensorsInput]]:
        del defaults, limits
        tensors: dict[str, NDArray[Any]] = {}
        for index, tensor in enumerate(request.inputs):
            path = f"inputs[{index}]"
            spec = self._specs.get(tensor.name)
            if spec is None and request.lenient_inputs and len(self.inputs) == len(request.inputs) == 1:
                (spec,) = self.inputs
            if spec is None:
                raise invalid(
                    f"Expected one of {', '.join(map(repr, self._specs))}, got {tensor.name!r}", f"{path}.name"
                )
            if spec.name in tensors:
                raise invalid(f"Expected each input once, got {tensor.name!r} again", f"{path}.name")
            tensors[spec.name] = _validated(tensor, spec, path, binary=self._binary, lenient=request.lenient_inputs)
        if len(tensors) < len(self._specs):
            expected = ", ".join(f"{spec.name} ({spec.datatype})" for spec in self.inputs)
            raise invalid(f"Expected the inputs of the model, {expected}, got {', '.join(tensors) or 'none'}", "inputs")
        # Chariot expects outputs with the names of inputs. A tensor model has one output for all its inputs.
        name = request.inputs[0].name if request.inputs else ""
        return [InputGroup(name=name, parameters=_parameters(request), items=[TensorsInput(tensors)])]

    def postprocess(self, item: TensorsInput, prediction: Tensors, /) -> Tensors:
        del item
        return prediction


class ImageTensorInference:
    """Return the output tensors for each image. The images are the first dimension of the declared outputs."""

    task_type = TaskType.TENSOR
    parameters_type = NoParameters
    inputs = (IMAGE_INPUT,)

    def __init__(self, outputs: Sequence[TensorSpec]) -> None:
        self.outputs = outputs

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[ImageTensorInput]]:
        del defaults
        check_count(request.inputs, limits)
        budget = PixelBudget(limits)
        return [
            InputGroup(
                name=tensor.name,
                index=index,
                parameters=request.parameters_of(index),
                items=[ImageTensorInput(image) for image in read_images(tensor, budget, f"inputs[{index}]")],
            )
            for index, tensor in enumerate(request.inputs)
        ]

    def postprocess(self, item: ImageTensorInput, prediction: ImageTensors, /) -> ImageTensors:
        del item
        return prediction


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    first, shapes = tensors[0], {tensor.shape for tensor in tensors}
    if len(shapes) > 1:
        shown = ", ".join(str(list(shape)) for shape in sorted(shapes))
        message = f"The output {first.name!r} has several shapes for these images, {shown}. Send one image in a request"
        raise InferenceError(ErrorKind.UNSUPPORTED, message)
    return msgspec.structs.replace(first, data=np.stack([tensor.data for tensor in tensors]))


def _parameters(request: InferenceRequest) -> Mapping[str, object]:
    """Return the parameters of the one output; several inputs have theirs as ``inputs[<index>].<name>``."""
    if len(request.inputs) == 1:
        return request.parameters_of(0)
    input_parameters = {
        f"inputs[{index}].{name}": value
        for index, tensor in enumerate(request.inputs)
        for name, value in tensor.parameters.items()
    }
    return {**request.parameters, **input_parameters}


def _validated(tensor: InputTensor, spec: TensorSpec, path: str, *, binary: bool, lenient: bool) -> NDArray[Any]:
    datatype = Datatype.BYTES if isinstance(tensor, BytesTensor) else tensor.datatype
    if datatype is not spec.datatype:
        raise invalid(f"Expected {spec.datatype} for {spec.name!r}, got {datatype}", f"{path}.datatype")
    shape = tensor.shape
    if isinstance(tensor, BytesTensor):
        shape = _shape_of_bytes(tensor, f"{path}.shape", lenient=lenient)
    if lenient and len(spec.shape) == 1 and len(shape) == 2 and shape[1] == 1:
        shape = shape[:1]
    if not spec.accepts(shape):
        message = f"Expected the shape {list(spec.shape)} for {spec.name!r}, got {quote_value(list(tensor.shape))}"
        raise invalid(message, f"{path}.shape")
    if isinstance(tensor, BytesTensor):
        return _elements(tensor, shape, path, binary=binary)
    return tensor.data if shape == tensor.shape else tensor.data.reshape(shape)


def _shape_of_bytes(tensor: BytesTensor, path: str, *, lenient: bool) -> tuple[int, ...]:
    """Return the shape of BYTES. If `lenient`, one dimension may be -1, whose size follows from the elements."""
    shape, count = tensor.shape, len(tensor.elements)
    if lenient and shape.count(-1) == 1:
        known_size = math.prod(size for size in shape if size != -1)
        missing_size = count // known_size if known_size > 0 else 0
        shape = tuple(missing_size if size == -1 else size for size in shape)
    if any(size < 0 for size in shape) or math.prod(shape) != count:
        message = f"Expected a shape for the {count} elements in data, got {quote_value(list(tensor.shape))}"
        raise invalid(message, path)
    return shape


def _elements(tensor: BytesTensor, shape: tuple[int, ...], path: str, *, binary: bool) -> NDArray[Any]:
    is_base64 = tensor.parameters.get("content_type") == "base64"
    array = np.empty(len(tensor.elements), object)
    for index, element in enumerate(tensor.elements):
        try:
            array[index] = _content(element, is_base64=is_base64, binary=binary)
        except InferenceError as error:
            raise error.with_prefix(f"{path}.data[{index}]") from None
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):
        message = f"Expected sizes whose product can be counted, got {list(tensor.shape)}"
        raise invalid(message, f"{path}.shape") from None


def _content(element: Element, *, is_base64: bool, binary: bool) -> str | bytes:
    """Return an element as text, or as bytes if the model accepts binary data and it is base64 or not text."""
    if not is_base64:
        try:
            return element.text()
        except InferenceError:
            if not binary:
                raise
    data = element.binary()
    if binary:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise invalid("Expected text in UTF-8, got other bytes") from None


def text_or_base64(value: bytes) -> object:
    """Return bytes as text, or as ``{"b64": "<base64>"}`` if they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
