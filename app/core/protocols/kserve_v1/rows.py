"""Instances for tensor models: each instance has one row of every input, each prediction one row of every output.

V1 has neither shapes nor datatypes: the nesting of the rows gives the shape. TensorFlow Serving has the same rows of
named values.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from app.core.protocols.kserve_v1.base64_objects import BASE64_KEY, nested_elements
from app.core.wire.json_body import read_json
from app.core.wire.json_tensors import index_path, read_numbers, shape_and_values, to_bfloat16_bits
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec, from_bfloat16_bits
from tasks.tensor_inference import text_or_base64

ValueT = TypeVar("ValueT")


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

    def body_path(self, subpath: str) -> str:
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

    Raise INVALID_REQUEST naming the instance and the input under `root`.
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

    Raise INVALID_REQUEST with `path` and the value's indices; see `read_numbers`.
    """
    is_bf16 = datatype is Datatype.BF16
    data = read_numbers(Datatype.FP32 if is_bf16 else datatype, raw, path)
    if is_bf16:
        data = to_bfloat16_bits(data)
        if not np.isfinite(from_bfloat16_bits(data)).all():
            raise invalid("Expected BF16 numbers, got one out of range", path)
    return Tensor(name=name, datatype=datatype, data=data, parameters=parameters or {})


def check_names(names: Collection[str], required: Collection[str], optional: Collection[str], path: str) -> None:
    """Reject an object at `path` without a required input, or with an unknown one. Raise INVALID_REQUEST."""
    missing = next((name for name in required if name not in names), None)
    if missing is not None:
        raise invalid(f"Expected a value for the input {missing!r}, got none", path)
    unknown = next((name for name in names if name not in required and name not in optional), None)
    if unknown is not None:
        expected = ", ".join(map(repr, (*required, *optional)))
        raise invalid(f"Expected one of {expected}, got {quote_value(unknown)}", path)


def columns_of_rows(
    rows: Sequence[Mapping[str, ValueT]], required: Sequence[str], optional: Collection[str], path: str
) -> Mapping[str, Sequence[ValueT]]:
    """Return the values of each input over all rows. An optional input is in all rows or in none.

    Raise INVALID_REQUEST naming the row under `path`.
    """
    expected = (*required, *(name for name in optional if name in rows[0]))
    rest = [name for name in optional if name not in expected]
    for index, row in enumerate(rows):
        check_names(row, expected, () if index else rest, f"{path}[{index}]")
    return {name: [row[name] for row in rows] for name in expected}


def prediction_rows(
    tensors: Sequence[Tensor], rows_of: Callable[[Tensor], Any], kind: ErrorKind, advice: str
) -> Sequence[Any]:
    """Return a prediction for each row: the row of the only output, or an object with the rows of all outputs.

    Raise InferenceError for outputs without a common first dimension.

    Args:
        tensors: the outputs.
        rows_of: returns the nested rows of an output.
        kind: the kind of the error.
        advice: what to do instead, for the error.
    """
    sizes = {tensor.shape[:1] for tensor in tensors}
    if len(sizes) != 1 or sizes == {()}:
        shapes = ", ".join(f"{tensor.name!r} {list(tensor.shape)}" for tensor in tensors)
        message = f"The outputs have no common first dimension and cannot be a list of predictions: {shapes}"
        raise InferenceError(kind, f"{message}. {advice}")
    columns = list(map(rows_of, tensors))
    if len(columns) == 1:
        return columns[0]
    names = [tensor.name for tensor in tensors]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
