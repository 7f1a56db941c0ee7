"""Decode requests of `:predict` in rows (``instances``) or columns (``inputs``), and encode their responses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

from app.protocols.bytes_elements import is_base64_object
from app.protocols.tensorflow_serving.document import debug_text, format_error
from app.protocols.tensorflow_serving.json_text import array_text, document_text, object_text, tensor_texts
from app.protocols.tensorflow_serving.signatures import Signature
from app.protocols.tensorflow_serving.status import code_name
from app.protocols.tensorflow_serving.values import check_values, read_tensor, shape_of
from tasks.inference.error import InferenceError, invalid
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import Datatype, InputTensor, Tensor
from tasks.vision.request import IMAGE_INPUT

__all__ = ("TensorFormat", "encode", "read_tensors")

_PIXELS = (Datatype.INT32, Datatype.FP32)
"""Datatypes for pixels in place of an encoded image: 0..255, or 0..1."""


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
    row, column = (tensor_format.value in document for tensor_format in TensorFormat)
    if row and column:
        message = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        raise format_error(document, message)
    if column:
        return _columns(document[TensorFormat.COLUMN], signature), TensorFormat.COLUMN
    if not row:
        raise invalid("Missing 'inputs' or 'instances' key")
    instances = document[TensorFormat.ROW]
    if not isinstance(instances, list):
        raise format_error(document, "Expecting 'instances' to be an list/array")
    if not instances:
        raise format_error(document, "No values in 'instances' array")
    return _rows(cast("list[object]", instances), signature), TensorFormat.ROW


def encode(response: InferenceResponse, tensor_format: TensorFormat) -> bytes:
    """Encode the response. A single tensor is written without its name.

    Raises:
        InferenceError: INVALID_REQUEST for a datatype that JSON cannot hold, and, for the row format, for tensors
            without rows or with different numbers of rows.
    """
    predictions = [prediction for output in response.outputs for prediction in output.predictions]
    tensors = type(predictions[0]).stack(predictions)
    if tensor_format is TensorFormat.ROW:
        return document_text("predictions", _rows_text(tensors))
    texts = {tensor.name: tensor_texts(tensor, rows=False)[0] for tensor in tensors}
    return document_text("outputs", object_text(texts, 1) if len(tensors) > 1 else texts[tensors[0].name])


def _rows_text(tensors: Sequence[Tensor]) -> str:
    size = None
    for tensor in tensors:
        if not tensor.shape:
            raise invalid(f"Tensor name: {tensor.name} has no shape information ")
        if size is not None and tensor.shape[0] != size:
            sizes = f"{tensor.shape[0]} expecting: {size}"
            raise invalid(f"Tensor name: {tensor.name} has inconsistent batch size: {sizes}")
        size = tensor.shape[0]
    rows = {tensor.name: tensor_texts(tensor, rows=True) for tensor in tensors}
    if len(rows) == 1:
        return array_text(rows[tensors[0].name])
    objects = [object_text(dict(zip(rows, texts, strict=True)), 2) for texts in zip(*rows.values(), strict=True)]
    line_break = "\n        "
    return f"[{line_break}{f',{line_break}'.join(objects)}\n    ]" if objects else "[]"


def _columns(value: object, signature: Signature) -> Mapping[str, InputTensor]:
    required = _required(signature)
    if not _is_named(value):
        if len(required) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        members = {required[0]: value}
    else:
        members = _with_canonical_names(value, signature)
    missing = [name for name in required if name not in members]
    if missing:
        raise invalid(f"Missing named input: {missing[0]} in 'inputs' object.")
    tensors: dict[str, InputTensor] = {}
    for name in signature.inputs:
        if name in members:
            tensor = _read_with_candidates(name, members[name], signature)
            if tensor is not None:
                tensors[name] = tensor
            else:
                check_values(members[name], _datatypes(name, members[name], signature)[-1], shape_of(members[name]))
    return tensors


def _rows(instances: Sequence[object], signature: Signature) -> Mapping[str, InputTensor]:
    required = _required(signature)
    has_names, is_base64 = _is_named(instances[0]), is_base64_object(instances[0])
    if not (has_names or is_base64) and len(required) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    if not has_names and any(map(_is_named, instances)):
        columns = None
    elif has_names:
        instances = [
            _with_canonical_names(instance, signature) if _is_named(instance) else instance for instance in instances
        ]
        columns = _transposed(instances, signature)
    else:
        columns = {required[0]: list(instances)}
    decoded = {name: _read_with_candidates(name, column, signature) for name, column in (columns or {}).items()}
    tensors = {name: tensor for name, tensor in decoded.items() if tensor is not None}
    if columns is None or len(tensors) < len(columns):
        _check_rows(instances, signature, None if has_names else required[0])
        raise invalid("Expected every instance to have the same inputs", TensorFormat.ROW)
    if len(tensors) < len(required):
        expected, received = ",".join(sorted(required)), required[0]
        missing = ",".join(sorted(set(required) - {received}))
        sizes = f"1!={len(required)} len({{{received}}}) != len({{{expected}}})"
        raise invalid(
            f"input size does not match signature: {sizes}. Sent extra: {{}}. Missing but required: {{{missing}}}."
        )
    return tensors


def _transposed(instances: Sequence[object], signature: Signature) -> dict[str, list[object]] | None:
    """Return objects as one list for each name; None if they do not have the same names."""
    if not all(map(_is_named, instances)):
        return None
    objects = [cast("dict[str, object]", instance) for instance in instances]
    names = set(objects[0])
    if not set(_required(signature)) <= names <= set(signature.inputs) or any(set(item) != names for item in objects):
        return None
    return {name: [item[name] for item in objects] for name in signature.inputs if name in names}


def _check_rows(instances: Sequence[object], signature: Signature, unnamed_input: str | None) -> None:
    """Raise the real server's error for invalid rows, in its order: by instance, then by key.

    Args:
        instances: the rows.
        signature: the signature that the rows must fit.
        unnamed_input: the input for rows without names; None for rows with names.
    """
    first_seen: dict[str, tuple[int, tuple[int, ...]]] = {}
    for index, instance in enumerate(instances):
        if unnamed_input is None and not _is_named(instance):
            raise invalid(f"Expecting object but got list at item {index} of input list")
        if unnamed_input is not None and _is_named(instance):
            raise invalid(f"Expecting value/list but got object at item {index} of input list")
        members = cast("dict[str, object]", instance) if unnamed_input is None else {unnamed_input: instance}
        for name, item in members.items():
            try:
                _check_item(name, item, signature, first_seen)
            except InferenceError as error:
                key = f" key: {name}" if unnamed_input is None else ""
                location = f"Failed to process element: {index}{key} of 'instances' list."
                raise invalid(f"{location} Error: {code_name(error.kind)}: {error}") from None
        required = _required(signature)
        if not set(required) <= set(members):
            raise invalid(
                f"Failed to process element: {index} of 'instances' list. JSON object: {debug_text(members)} keys must "
                f"be equal to: {','.join(sorted(required))}"
            )


def _check_item(
    name: str, item: object, signature: Signature, first_seen: dict[str, tuple[int, tuple[int, ...]]]
) -> None:
    if name not in signature.inputs:
        raise invalid(f"JSON object: does not have named input: {name}")
    shape = shape_of(item)
    size = check_values(item, _datatypes(name, item, signature)[-1], shape)
    first_size, first_shape = first_seen.setdefault(name, (size, shape))
    if size != first_size:
        raise invalid(f"Expecting tensor size: {first_size} but got: {size}")
    if shape != first_shape:
        raise invalid(f"Expecting shape {_sizes(first_shape)} but got: {_sizes(shape)}")


def _read_with_candidates(name: str, value: object, signature: Signature) -> InputTensor | None:
    candidates = (read_tensor(name, datatype, value) for datatype in _datatypes(name, value, signature))
    return next((tensor for tensor in candidates if tensor is not None), None)


def _datatypes(name: str, value: object, signature: Signature) -> tuple[Datatype, ...]:
    """Return the datatypes to try for a value: pixels may replace an encoded image, whatever the signature says."""
    if not signature.is_tensor_model and name == IMAGE_INPUT.name:
        leaf = value
        while isinstance(leaf, list) and leaf:
            leaf = cast("list[Any]", leaf)[0]
        if isinstance(leaf, int | float) and not isinstance(leaf, bool):
            return _PIXELS
    return (signature.inputs[name].datatype,)


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and not is_base64_object(cast("object", value))


def _with_canonical_names(value: object, signature: Signature) -> dict[str, object]:
    members = cast("dict[str, object]", value)
    if not signature.aliases:
        return members
    names = {name: signature.aliases.get(name, name) for name in members}
    # Rename an input only if it came under one name, because neither of two names is better.
    name_counts = Counter(names.values())
    return {canonical if name_counts[canonical] == 1 else name: members[name] for name, canonical in names.items()}


def _required(signature: Signature) -> list[str]:
    return [name for name in signature.inputs if name not in signature.optional]


def _sizes(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
