"""Decode requests of `:predict` in rows (``instances``) or columns (``inputs``), and encode their responses."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar, cast

from app.core.protocols.kserve_v1.base64_objects import is_base64_object
from app.core.protocols.kserve_v1.rows import check_names, columns_of_rows, prediction_rows
from app.core.wire.json_tensors import flatten_rows
from app.plugins.tensorflow_serving.signatures import Signature
from app.plugins.tensorflow_serving.values import json_document, json_value, read_tensor
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import Datatype, InputTensor
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

    Raise INVALID_REQUEST, or UNSUPPORTED for columns of a datatype that JSON cannot hold.
    """
    if not signature.inputs:
        raise invalid("Expected a model with inputs, this one has none")
    formats = [tensor_format for tensor_format in TensorFormat if tensor_format in document]
    if len(formats) != 1:
        raise invalid(f'Expected either "instances" or "inputs", got {"both" if formats else "neither"}')
    if formats == [TensorFormat.COLUMN]:
        return _tensors(_columns(document[TensorFormat.COLUMN], signature), signature), TensorFormat.COLUMN
    instances = document[TensorFormat.ROW]
    if not isinstance(instances, list) or not instances:
        raise invalid(f"Expected a list of at least one instance, got {instances!r:.80}", TensorFormat.ROW)
    try:
        return _tensors(_rows(cast("list[object]", instances), signature), signature), TensorFormat.ROW
    except InferenceError as error:
        # Rows of a datatype that JSON cannot hold are an invalid argument, as in the real server.
        raise invalid(error.message, error.path) from None


def encode(response: InferenceResponse, tensor_format: TensorFormat) -> bytes:
    """Encode the response. A single tensor is written without its name.

    Raise INVALID_REQUEST for a datatype that JSON cannot hold, and, for the row format, for tensors without rows or
    with different numbers of rows.
    """
    tensors = response.stack()
    if tensor_format is TensorFormat.ROW:
        advice = 'Send "inputs", to get "outputs"'
        return json_document("predictions", prediction_rows(tensors, json_value, ErrorKind.INVALID_REQUEST, advice))
    values = {tensor.name: json_value(tensor) for tensor in tensors}
    return json_document("outputs", values if len(values) > 1 else values[tensors[0].name])


def with_canonical_names(members: Mapping[str, ValueT], signature: Signature) -> Mapping[str, ValueT]:
    """Return `members` by the signature's names for its inputs."""
    if not signature.aliases:
        return members
    names = {name: signature.aliases.get(name, name) for name in members}
    # Rename an input only if it came under one name, because neither of two names is better.
    name_counts = Counter(names.values())
    return {canonical if name_counts[canonical] == 1 else name: members[name] for name, canonical in names.items()}


def _columns(value: object, signature: Signature) -> Mapping[str, object]:
    """Return the value of each input from an object, or from the value of the only required input."""
    if not _is_named(value):
        return {_only_required(signature, TensorFormat.COLUMN): value}
    members = with_canonical_names(cast("dict[str, object]", value), signature)
    # The real server ignores unknown names in columns.
    check_names(members, signature.required, members, TensorFormat.COLUMN)
    return members


def _rows(instances: list[object], signature: Signature) -> Mapping[str, object]:
    """Return the values of each input over all instances."""
    if not _is_named(instances[0]):
        return {_only_required(signature, TensorFormat.ROW): instances}
    rows: list[Mapping[str, object]] = []
    for index, instance in enumerate(instances):
        if not _is_named(instance):
            message = f"Expected an object, as the first instance is, got {quote_value(instance)}"
            raise invalid(message, f"{TensorFormat.ROW}[{index}]")
        rows.append(with_canonical_names(cast("dict[str, object]", instance), signature))
    return columns_of_rows(rows, signature.required, signature.optional, TensorFormat.ROW)


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


def _only_required(signature: Signature, path: str) -> str:
    if len(signature.required) > 1:
        names = ", ".join(map(repr, signature.required))
        raise invalid(f"Expected objects with the inputs {names}, got values without names", path)
    return signature.required[0]
