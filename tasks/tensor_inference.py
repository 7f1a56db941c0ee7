"""TENSOR: a model served as it is, tensors in and tensors out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.error import InferenceError, brief, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.task import InputGroup, Model, TaskType

__all__ = ("TensorInference", "TensorModel", "TensorRecord", "Tensors", "TensorsInput")


class TensorRecord(msgspec.Struct, frozen=True):
    """One output tensor: row-major `data`, BYTES elements as text."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


class Tensors(msgspec.Struct, frozen=True, eq=False):
    """The output tensors of one call."""

    tensors: Sequence[Tensor]

    def records(self) -> list[TensorRecord]:
        """One `TensorRecord` for each tensor. Numbers that are not finite become null in JSON."""
        return [
            TensorRecord(each.name, each.datatype, list(each.shape), _plain(each.data.ravel())) for each in self.tensors
        ]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """The tensors themselves: one call, one prediction.

        Raises:
            ValueError: for several predictions, which have no common batch dimension.
        """
        (only,) = predictions
        return only.tensors


class TensorsInput(msgspec.Struct, frozen=True, eq=False):
    """The input tensors of one call, by name; BYTES are object arrays of `str`."""

    tensors: Mapping[str, NDArray[Any]]


TensorModel = Model[TensorsInput, Tensors]


class NoParameters(msgspec.Struct, frozen=True):
    """Tensors are all that such a model is given."""


class TensorInference:
    """Checks tensors against what the model declares, and hands them on.

    Args:
        inputs: the model's declared inputs; -1 is a dimension of any size.
        outputs: its declared outputs.
    """

    task_type = TaskType.TENSOR
    parameters_type = NoParameters

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._specs = {spec.name: spec for spec in inputs}

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[TensorsInput]]:
        del defaults, limits
        tensors: dict[str, NDArray[Any]] = {}
        for index, tensor in enumerate(request.inputs):
            path = f"inputs[{index}]"
            spec = self._specs.get(tensor.name)
            if spec is None:
                raise invalid(f"Expected one of {_listed(self._specs)}, got {tensor.name!r}", f"{path}.name")
            if tensor.name in tensors:
                raise invalid(f"Expected each input once, got {tensor.name!r} again", f"{path}.name")
            tensors[tensor.name] = _checked(tensor, spec, path)
        missing = [name for name in self._specs if name not in tensors]
        if missing:
            raise invalid(f"Expected the inputs {_listed(self._specs)}, {_listed(missing)} did not come", "inputs")
        return [InputGroup(name="", parameters=request.parameters, items=[TensorsInput(tensors)])]

    def refine(self, item: TensorsInput, prediction: Tensors, /) -> Tensors:
        del item
        return prediction


def _checked(tensor: InputTensor, spec: TensorSpec, path: str) -> NDArray[Any]:
    datatype = Datatype.BYTES if isinstance(tensor, BytesTensor) else tensor.datatype
    if datatype is not spec.datatype:
        raise invalid(f"Expected {spec.datatype} for {spec.name!r}, got {datatype}", f"{path}.datatype")
    fits = len(tensor.shape) == len(spec.shape) and all(
        wanted in (-1, size) for size, wanted in zip(tensor.shape, spec.shape, strict=True)
    )
    if not fits:
        message = f"Expected the shape {list(spec.shape)} for {spec.name!r}, got {brief(list(tensor.shape))}"
        raise invalid(message, f"{path}.shape")
    return _elements(tensor, path) if isinstance(tensor, BytesTensor) else tensor.data


def _elements(tensor: BytesTensor, path: str) -> NDArray[Any]:
    if math.prod(tensor.shape) != len(tensor.elements) or any(size < 0 for size in tensor.shape):
        message = f"Expected a shape for the {len(tensor.elements)} elements in data, got {brief(list(tensor.shape))}"
        raise invalid(message, f"{path}.shape")
    array = np.empty(len(tensor.elements), object)
    for index, element in enumerate(tensor.elements):
        try:
            array[index] = element.text()
        except InferenceError as error:
            raise error.under(f"{path}.data[{index}]") from None
    try:
        return array.reshape(tensor.shape)
    except (ValueError, OverflowError):
        message = f"Expected sizes whose product can be counted, got {list(tensor.shape)}"
        raise invalid(message, f"{path}.shape") from None


def _plain(values: NDArray[Any]) -> list[Any]:
    if values.dtype == object:
        return [value.decode(errors="replace") for value in values]
    return values.tolist()


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(repr(name) for name in names)
