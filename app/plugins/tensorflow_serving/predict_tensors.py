"""Decode requests of `:predict` in rows (``instances``) or columns (``inputs``), and encode their responses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar, cast

from app.core.wire.bytes_elements import is_base64_object
from app.core.wire.json_tensors import flatten_rows
from app.plugins.tensorflow_serving.signatures import Signature
from app.plugins.tensorflow_serving.values import json_document, json_value, read_tensor
from tasks.inference.error import InferenceError, invalid
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import Datatype, InputTensor, Tensor
from tasks.vision.request import IMAGE_INPUT

ValueT = TypeVar("ValueT")


class TensorFormat(StrEnum):
    """The layout of tensors in a request and its response. The values are the JSON keys."""

    ROW = "instances"
    COLUMN = "inputs"


def read_tensors(
    document: Mapping[str, object], signature: Signature
) -> tuple[Mapping[str, InputTensor], TensorFormat]:
    """Return the tensors of a request by the signature's names, and their format.

    Raises:
        InferenceError: INVALID_REQUEST, or UNSUPPORTED for columns of a datatype that JSON cannot hold.
    """
    if not signature.inputs:
        raise invalid(f"Failed to get input map for signature: {signature.name}")
    row, column = TensorFormat.ROW in document, TensorFormat.COLUMN in document
    if row and column:
        raise invalid("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist")
    if column:
        return _tensors(_columns(document[TensorFormat.COLUMN], signature), signature), TensorFormat.COLUMN
    if not row:
        raise invalid("Missing 'inputs' or 'instances' key")
    instances = document[TensorFormat.ROW]
    if not isinstance(instances, list):
        raise invalid("Expecting 'instances' to be an list/array")
    if not instances:
        raise invalid("No values in 'instances' array")
    try:
        return _tensors(_rows(cast("list[object]", instances), signature), signature), TensorFormat.ROW
    except InferenceError as error:
        # Rows of a datatype that JSON cannot hold are an invalid argument, as in the real server.
        raise invalid(error.message, error.path) from None


def encode(response: InferenceResponse, tensor_format: TensorFormat) -> bytes:
    """Encode the response. A single tensor is written without its name.

    Raises:
        InferenceError: INVALID_REQUEST for a datatype that JSON cannot hold, and, for the row format, for tensors
            without rows or with different numbers of rows.
    """
    tensors = response.stack()
    if tensor_format is TensorFormat.ROW:
        _check_batch_size(tensors)
    values = {tensor.name: json_value(tensor) for tensor in tensors}
    if tensor_format is TensorFormat.COLUMN:
        return json_document("outputs", values if len(values) > 1 else values[tensors[0].name])
    if len(values) == 1:
        return json_document("predictions", values[tensors[0].name])
    return json_document(
        "predictions", [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    )


def with_canonical_names(members: Mapping[str, ValueT], signature: Signature) -> Mapping[str, ValueT]:
    """Return `members` by the signature's names for its inputs."""
    if not signature.aliases:
        return members
    names = {name: signature.aliases.get(name, name) for name in members}
    # Rename an input only if it came under one name, because neither of two names is better.
    name_counts = Counter(names.values())
    return {canonical if name_counts[canonical] == 1 else name: members[name] for name, canonical in names.items()}


def _check_batch_size(tensors: Sequence[Tensor]) -> None:
    shapes = [tensor.shape for tensor in tensors]
    for tensor, shape in zip(tensors, shapes, strict=True):
        if not shape:
            raise invalid(f"Tensor name: {tensor.name} has no shape information ")
        if shape[0] != shapes[0][0]:
            sizes = f"{shape[0]} expecting: {shapes[0][0]}"
            raise invalid(f"Tensor name: {tensor.name} has inconsistent batch size: {sizes}")


def _columns(value: object, signature: Signature) -> Mapping[str, object]:
    """Return the value of each input from an object, or from the value of the only required input."""
    if not _is_named(value):
        return {_only_required(signature, "inputs is a plain value/list, but expecting an object"): value}
    members = with_canonical_names(cast("dict[str, object]", value), signature)
    missing = [name for name in _required(signature) if name not in members]
    if missing:
        raise invalid(f"Missing named input: {missing[0]} in 'inputs' object.")
    return members


def _rows(instances: list[object], signature: Signature) -> Mapping[str, object]:
    """Return the values of each input over all instances."""
    if not _is_named(instances[0]):
        named = next((index for index, instance in enumerate(instances) if _is_named(instance)), None)
        if named is not None:
            raise invalid(f"Expecting value/list but got object at item {named} of input list")
        return {_only_required(signature, "instances is a plain list, but expecting list of objects"): instances}
    rows: list[Mapping[str, object]] = []
    for index, instance in enumerate(instances):
        if not _is_named(instance):
            raise invalid(f"Expecting object but got list at item {index} of input list")
        row = with_canonical_names(cast("dict[str, object]", instance), signature)
        unknown = next((name for name in row if name not in signature.inputs), None)
        if unknown is not None:
            raise invalid(f"JSON object: does not have named input: {unknown}", f"instances[{index}]")
        expected = set(rows[0] if rows else row) | set(_required(signature))
        if set(row) != expected:
            raise invalid(f"JSON object: keys must be equal to: {','.join(sorted(expected))}", f"instances[{index}]")
        rows.append(row)
    return {name: [row[name] for row in rows] for name in rows[0]}


def _tensors(values: Mapping[str, object], signature: Signature) -> Mapping[str, InputTensor]:
    return {
        name: read_tensor(name, _datatype(name, values[name], signature), values[name])
        for name in signature.inputs
        if name in values
    }


def _datatype(name: str, value: object, signature: Signature) -> Datatype:
    """Return the datatype of an input. Pixels, 0..255 or 0..1, may replace an encoded image."""
    if signature.takes_tensors or name != IMAGE_INPUT.name:
        return signature.inputs[name].datatype
    leaves = flatten_rows([value])
    if not leaves or type(leaves[0]) not in (int, float):
        return signature.inputs[name].datatype
    return Datatype.INT32 if all(type(leaf) is int for leaf in leaves) else Datatype.FP32


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and not is_base64_object(cast("object", value))


def _required(signature: Signature) -> list[str]:
    return [name for name in signature.inputs if name not in signature.optional]


def _only_required(signature: Signature, problem: str) -> str:
    required = _required(signature)
    if len(required) > 1:
        raise invalid(f"{problem} as multiple input tensors required as per tensorinfo_map")
    return required[0]
