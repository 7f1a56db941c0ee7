"""Decode nested JSON values as tensors, with the real server's checks and messages.

The rules and messages are those of tensorflow/serving, `json_tensor.cc`. A valid tensor takes a few passes over all
values. Only an invalid tensor is walked value by value, to find its message.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.protocols.bytes_elements import BASE64_KEY, BinaryElement, StringElement, is_base64_object
from app.protocols.tensorflow_serving.document import debug_text, format_error, type_name
from app.protocols.tensorflow_serving.dtypes import short_name
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.tensor import BytesTensor, Datatype, Element, InputTensor, Tensor

__all__ = ("check_values", "decode_base64", "read_tensor", "shape_of")

_MAX_DIMENSIONS = 64
"""NumPy's limit; TensorFlow has 254."""

_NUMBERS = frozenset({int, float})
_INTEGERS = frozenset({int})
_AS_INT32 = frozenset({Datatype.INT8, Datatype.INT16, Datatype.INT32, Datatype.UINT8})
"""Checked only against the range of INT32. Narrower datatypes keep the lowest bits, as in the real server."""

_RANGES = {
    Datatype.INT64: (-(2**63), 2**63 - 1),
    Datatype.UINT32: (0, 2**32 - 1),
    Datatype.UINT64: (0, 2**64 - 1),
    **dict.fromkeys(_AS_INT32, (-(2**31), 2**31 - 1)),
}
_ACCEPTED_TYPES: dict[Datatype, frozenset[type]] = {
    Datatype.BOOL: frozenset({bool}),
    Datatype.FP32: _NUMBERS,
    Datatype.FP64: _NUMBERS,
    Datatype.BYTES: frozenset({str, dict}),
    **dict.fromkeys(_RANGES, _INTEGERS),
}


def read_tensor(name: str, datatype: Datatype, value: object) -> InputTensor | None:
    """Return `value` as a tensor whose shape is its nesting; None if `check_values` would reject it.

    Raises:
        InferenceError: INVALID_REQUEST for a number beyond double, or too many dimensions.
    """
    shape: list[int] = []
    leaves: list[Any] = [value]
    while leaves and type(leaves[0]) is list:
        size = len(cast("list[Any]", leaves[0]))
        if any(type(row) is not list or len(cast("list[Any]", row)) != size for row in leaves):
            return None
        shape.append(size)
        leaves = list(chain.from_iterable(cast("list[list[Any]]", leaves)))
    _check_rank(shape)
    if not set(map(type, leaves)) <= _ACCEPTED_TYPES.get(datatype, frozenset()):
        return None
    if datatype is Datatype.BYTES:
        elements = [_element(leaf) for leaf in leaves]
        valid_elements = [element for element in elements if element is not None]
        return (
            BytesTensor(name=name, shape=tuple(shape), elements=valid_elements)
            if len(valid_elements) == len(elements)
            else None
        )
    data = _numbers(datatype, leaves)
    return None if data is None else Tensor(name=name, datatype=datatype, data=data.reshape(shape))


def shape_of(value: object) -> tuple[int, ...]:
    """Return the sizes of a nested list, measured at its first elements.

    Raises:
        InferenceError: INVALID_REQUEST for too many dimensions.
    """
    shape: list[int] = []
    while isinstance(value, list):
        elements = cast("list[Any]", value)
        shape.append(len(elements))
        value = elements[0] if elements else None
    _check_rank(shape)
    return tuple(shape)


def check_values(value: object, datatype: Datatype, shape: Sequence[int], level: int = 0) -> int:
    """Count the values in `value`, at depth `level` of a tensor of `shape`.

    Raises:
        InferenceError: INVALID_REQUEST or UNSUPPORTED, with the reason for the first invalid value.
    """
    if not isinstance(value, list):
        if level != len(shape):
            location = f"found at incorrect level: {level + 1} in the JSON DOM. Expected at level: {len(shape)}"
            raise format_error(value, location)
        _check_value(value, datatype)
        return 1
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    elements = cast("list[Any]", value)
    if len(elements) != shape[level]:
        sizes = f"{len(elements)} at level: {level} expected size: {shape[level]}"
        raise invalid(f"Encountered list at unexpected size: {sizes}")
    return sum(check_values(element, datatype, shape, level + 1) for element in elements)


def decode_base64(value: Mapping[str, str]) -> bytes:
    """Return the bytes of a value for which `is_base64_object` is true.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    try:
        return StringElement(value[BASE64_KEY]).binary()
    except InferenceError:
        raise invalid("Unable to base64 decode") from None


def _check_value(value: object, datatype: Datatype) -> None:
    value_type = type(value)
    if value_type is dict and datatype is Datatype.BYTES:
        if not is_base64_object(value):
            raise format_error(value, "not formatted correctly for base64 data")
        decode_base64(value)
        return
    if datatype not in _ACCEPTED_TYPES and value_type is not dict:
        message = f"Conversion of JSON Value: {debug_text(value)} to type: {short_name(datatype)}"
        raise InferenceError(ErrorKind.UNSUPPORTED, message)
    fits = value_type in _ACCEPTED_TYPES.get(datatype, frozenset())
    if fits and datatype in _RANGES:
        low, high = _RANGES[datatype]
        fits = low <= cast("int", value) <= high
    if not fits:
        raise format_error(value, f"Type: {type_name(value)} is not of expected type: {short_name(datatype)}")


def _check_rank(shape: Sequence[int]) -> None:
    if len(shape) > _MAX_DIMENSIONS:
        raise invalid(f"Expected a tensor of at most {_MAX_DIMENSIONS} dimensions, got {len(shape)}")


def _element(leaf: object) -> Element | None:
    if isinstance(leaf, str):
        return StringElement(leaf)
    try:
        return BinaryElement(decode_base64(leaf)) if is_base64_object(leaf) else None
    except InferenceError:
        return None


def _numbers(datatype: Datatype, leaves: Sequence[Any]) -> NDArray[Any] | None:
    if datatype in _RANGES:
        low, high = _RANGES[datatype]
        if leaves and (min(leaves) < low or max(leaves) > high):
            return None
        wide_dtype = np.int64 if datatype in _AS_INT32 else datatype.dtype
        return np.array(leaves, wide_dtype).astype(datatype.dtype)
    if datatype is Datatype.BOOL:
        return np.array(leaves, np.bool_)
    try:
        doubles = np.array(leaves, np.float64)
    except OverflowError:
        raise invalid("JSON Parse error: Number too big to be stored in double.") from None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return doubles.astype(datatype.dtype)
