"""Instances of models that take tensors: one row each of every input, and of every output on the way back."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pybase64

from app.protocols.bfloat16 import numbers_of
from app.protocols.bytes_elements import B64, BinaryElement, StringElement, is_b64
from app.protocols.json_body import read_json
from app.protocols.kserve_v1.nesting import nested_tensor
from app.protocols.nested_rows import leaves, place
from tasks.exchange.error import ErrorKind, InferenceError, brief, invalid
from tasks.exchange.tensor import BytesTensor, Datatype, Element, InputTensor, Tensor, TensorSpec

__all__ = ("Column", "prediction_rows", "read_rows")

_COLUMN = "column"


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One input over all instances.

    Attributes:
        tensor: its values, the instances first.
        root: the list of instances.
        name: under which each instance has its value; empty when the instance is the value.
    """

    tensor: InputTensor
    root: str
    name: str

    def field(self, rest: str) -> str:
        """Where the body has what the neutral request has at `rest` within the input."""
        return _under(self.root, self.name, self._indices(rest) if rest.startswith("data[") else "")

    def _indices(self, rest: str) -> str:
        indices = rest.removeprefix("data")
        if not isinstance(self.tensor, BytesTensor):
            return indices
        # The elements of BYTES are counted through, whatever their shape.
        return place(int(indices.strip("[]")), self.tensor.shape)


def read_rows(instances: Sequence[msgspec.Raw], root: str, specs: Sequence[TensorSpec]) -> Sequence[Column]:
    """Every input of `specs`. An instance is an object of all of them; where there is one, it may be the value itself.

    Raises:
        InferenceError: INVALID_REQUEST naming the instance and the input under `root`.
    """
    if len(specs) == 1 and not _is_named(instances[0], root):
        return [_column(specs[0], instances, root, "")]
    names = [spec.name for spec in specs]
    rows: list[dict[str, msgspec.Raw]] = []
    for index, raw in enumerate(instances):
        path = f"{root}[{index}]"
        row = read_json(raw, dict[str, msgspec.Raw], path)
        for name in names:
            if name not in row:
                raise invalid(f"Expected a value for the input {name!r}, got none", path)
        unknown = next((name for name in row if name not in names), None)
        if unknown is not None:
            raise invalid(f"Expected one of {', '.join(map(repr, names))}, got {brief(unknown)}", path)
        rows.append(row)
    return [_column(spec, [row[spec.name] for row in rows], root, spec.name) for spec in specs]


def prediction_rows(tensors: Sequence[Tensor]) -> Sequence[Any]:
    """One prediction for each row: the row of the only output, or an object of the rows of all.

    Raises:
        InferenceError: UNSUPPORTED for outputs that have no common first dimension.
    """
    sizes = {tensor.shape[:1] for tensor in tensors}
    if len(sizes) != 1 or sizes == {()}:
        shapes = ", ".join(f"{tensor.name!r} {list(tensor.shape)}" for tensor in tensors)
        message = f"The outputs have no first dimension in common, so that they are no list of predictions: {shapes}"
        raise InferenceError(ErrorKind.UNSUPPORTED, f"{message}. Ask for them over V2")
    columns = [_plain(tensor) for tensor in tensors]
    if len(columns) == 1:
        return columns[0]
    names = [tensor.name for tensor in tensors]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _is_named(instance: msgspec.Raw, root: str) -> bool:
    """Whether an instance names its values; ``{"b64": ...}`` is a value."""
    if bytes(memoryview(instance)[:1]) != b"{":
        return False
    return list(read_json(instance, dict[str, msgspec.Raw], f"{root}[0]")) != [B64]


def _column(spec: TensorSpec, values: Sequence[msgspec.Raw], root: str, name: str) -> Column:
    joined = msgspec.Raw(b"[" + b",".join(map(memoryview, values)) + b"]")
    try:
        if spec.datatype is Datatype.BYTES:
            return Column(tensor=_texts(spec.name, joined), root=root, name=name)
        return Column(tensor=nested_tensor(spec.name, spec.datatype, joined, _COLUMN), root=root, name=name)
    except InferenceError as error:
        indices = error.path.removeprefix(f"{_COLUMN}.data") if error.path.startswith(f"{_COLUMN}.data") else ""
        raise InferenceError(error.kind, error.message, _under(root, name, indices)) from None


def _texts(name: str, raw: msgspec.Raw) -> BytesTensor:
    shape, values = leaves(read_json(raw, list[Any], f"{_COLUMN}.data"), f"{_COLUMN}.data")
    elements: list[Element] = []
    for index, value in enumerate(values):
        try:
            elements.append(_element(value))
        except InferenceError as error:
            raise error.under(f"{_COLUMN}.data{place(index, shape)}") from None
    return BytesTensor(name=name, shape=shape, elements=elements)


def _element(value: object) -> Element:
    if isinstance(value, str):
        return StringElement(value)
    if is_b64(value):
        return BinaryElement(StringElement(value[B64]).binary())
    raise invalid(f'Expected a text, or {{"b64": "<base64>"}}, got {brief(value)}')


def _plain(tensor: Tensor) -> list[Any]:
    """The tensor as nested rows; BYTES as texts, or as ``{"b64": ...}`` where they are none."""
    if tensor.datatype is Datatype.BF16:
        return numbers_of(tensor.data).tolist()
    if tensor.datatype is not Datatype.BYTES:
        return tensor.data.tolist()
    written = np.empty(tensor.data.size, object)
    for index, element in enumerate(tensor.data.ravel()):
        written[index] = _text_or_b64(element)
    return written.reshape(tensor.shape).tolist()


def _text_or_b64(element: bytes) -> object:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return {B64: pybase64.b64encode_as_string(element)}


def _under(root: str, name: str, indices: str) -> str:
    """Where the value at `indices` of an input stands: the first of them is the instance, then comes the name."""
    if not name or not indices:
        return root + indices
    first, bracket, inner = indices.partition("]")
    return f"{root}{first}{bracket}.{name}{inner}"
