"""Instances for tensor models: each instance has one row of every input, each prediction one row of every output.

V1 has neither shapes nor datatypes: the nesting of the rows gives the shape.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.wire.bytes_elements import BASE64_KEY, nested_elements
from app.core.wire.json_body import read_json
from app.core.wire.json_tensors import index_path, read_numbers, shape_and_values, to_bfloat16_bits
from app.core.wire.rows import columns_of_rows
from tasks.inference.error import InferenceError, invalid
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec, from_bfloat16_bits
from tasks.tensor_inference import text_or_base64


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One input over all instances.

    Attributes:
        tensor: the values, with the instances as the first dimension.
        root: path of the list of instances.
        name: key of the value in each instance; empty when the instance is the value.
    """

    tensor: InputTensor
    root: str
    name: str

    def body_path(self, subpath: str, _: str = "") -> str:
        """Return the path in the body for the path `subpath` within the neutral input, which has no parameters."""
        return _value_path(self.root, self.name, self._indices(subpath) if subpath.startswith("data[") else "")

    def _indices(self, subpath: str) -> str:
        indices = subpath.removeprefix("data")
        if not isinstance(self.tensor, BytesTensor):
            return indices
        # BYTES elements are numbered in row-major order, whatever the shape.
        return index_path(int(indices.strip("[]")), self.tensor.shape)


def read_rows(instances: Sequence[msgspec.Raw], root: str, specs: Sequence[TensorSpec]) -> Sequence[Column]:
    """Decode every input of `specs`. An instance is an object with all inputs; with one input, it may be the value.

    Raises:
        InferenceError: INVALID_REQUEST naming the instance and the input under `root`.
    """
    if len(specs) == 1 and not _is_named(instances[0], root):
        return [_column(specs[0], instances, root, "")]
    rows = [read_json(raw, dict[str, msgspec.Raw], f"{root}[{index}]") for index, raw in enumerate(instances)]
    columns = columns_of_rows(rows, [spec.name for spec in specs], (), root)
    return [_column(spec, columns[spec.name], root, spec.name) for spec in specs]


def _is_named(instance: msgspec.Raw, root: str) -> bool:
    """Return whether an instance is an object of named values; ``{"b64": ...}`` is a single value."""
    if bytes(memoryview(instance)[:1]) != b"{":
        return False
    return list(read_json(instance, dict[str, msgspec.Raw], f"{root}[0]")) != [BASE64_KEY]


def _column(spec: TensorSpec, values: Sequence[msgspec.Raw], root: str, name: str) -> Column:
    joined = msgspec.Raw(b"[" + b",".join(map(memoryview, values)) + b"]")
    try:
        if spec.datatype is Datatype.BYTES:
            shape, texts = shape_and_values(read_json(joined, list[Any], root), root)
            return Column(tensor=nested_elements(spec.name, shape, texts, root), root=root, name=name)
        return Column(tensor=nested_tensor(spec.name, spec.datatype, joined, root), root=root, name=name)
    except InferenceError as error:
        path = _value_path(root, name, error.path.removeprefix(root))
        raise InferenceError(error.kind, error.message, path) from None


def nested_rows(tensor: Tensor) -> list[Any]:
    """Return the tensor as nested rows; BYTES as text, or as ``{"b64": ...}`` if they are not UTF-8."""
    if tensor.datatype is not Datatype.BYTES:
        return tensor.values.tolist()
    values = [text_or_base64(element) for element in tensor.data.ravel()]
    return np.array(values, object).reshape(tensor.shape).tolist()


def _value_path(root: str, name: str, indices: str) -> str:
    """Return the path of the value at `indices` of an input: the instance's index, then the name, then the rest."""
    if not name or not indices:
        return root + indices
    first, bracket, inner = indices.partition("]")
    return f"{root}{first}{bracket}.{name}{inner}"


def nested_tensor(
    name: str, datatype: Datatype, raw: msgspec.Raw, path: str, parameters: Mapping[str, object] | None = None
) -> Tensor:
    """Return a tensor of `datatype` with the shape of the nested rows in `raw`.

    Raises:
        InferenceError: INVALID_REQUEST with `path` and the value's indices; see `read_numbers`.
    """
    is_bf16 = datatype is Datatype.BF16
    array = read_numbers(Datatype.FP32 if is_bf16 else datatype, raw, path)
    data = _to_bfloat16(array, path) if is_bf16 else array
    return Tensor(name=name, datatype=datatype, data=data, parameters=parameters or {})


def _to_bfloat16(numbers: NDArray[np.float32], path: str) -> NDArray[np.uint16]:
    bits = to_bfloat16_bits(numbers)
    if not np.isfinite(from_bfloat16_bits(bits)).all():
        raise invalid("Expected BF16 numbers, got one out of range", path)
    return bits
