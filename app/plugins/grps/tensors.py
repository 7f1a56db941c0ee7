"""Convert `GenericTensor` to and from neutral tensors.

GRPS has fewer datatypes than models. A missing datatype is sent as the narrowest wider one, and is converted back to
the model's datatype if no value changes.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.wire.bytes_elements import StringElement
from app.core.wire.json_tensors import MAX_DIMENSIONS, reshape, to_bfloat16_bits
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec, from_bfloat16_bits


class WireType(msgspec.Struct, frozen=True):
    """A `DataType`: its number and name, its datatype, its field, and the dtype in which protobuf stores elements."""

    number: int
    name: str
    datatype: Datatype
    field: str
    stored_dtype: np.dtype[Any]


_TYPES = (
    WireType(1, "DT_UINT8", Datatype.UINT8, "flat_uint8", np.dtype(np.uint32)),
    WireType(2, "DT_INT8", Datatype.INT8, "flat_int8", np.dtype(np.int32)),
    WireType(3, "DT_INT16", Datatype.INT16, "flat_int16", np.dtype(np.int32)),
    WireType(4, "DT_INT32", Datatype.INT32, "flat_int32", np.dtype(np.int32)),
    WireType(5, "DT_INT64", Datatype.INT64, "flat_int64", np.dtype(np.int64)),
    WireType(6, "DT_FLOAT16", Datatype.FP16, "flat_float16", np.dtype(np.float32)),
    WireType(7, "DT_FLOAT32", Datatype.FP32, "flat_float32", np.dtype(np.float32)),
    WireType(8, "DT_FLOAT64", Datatype.FP64, "flat_float64", np.dtype(np.float64)),
    WireType(9, "DT_STRING", Datatype.BYTES, "flat_string", np.dtype(object)),
)

FLAT_FIELDS = {wire.field: wire for wire in _TYPES}
"""The fields with elements, by name."""

_BY_NUMBER = {wire.number: wire for wire in _TYPES}
_BY_DATATYPE = {wire.datatype: wire for wire in _TYPES}

_WIDENED: dict[Datatype, Datatype] = {
    Datatype.BOOL: Datatype.UINT8,
    Datatype.UINT16: Datatype.INT32,
    Datatype.UINT32: Datatype.INT64,
    Datatype.UINT64: Datatype.INT64,
    Datatype.BF16: Datatype.FP32,
}
"""The datatypes that GRPS lacks, and those that they are sent as."""


def wire_type(datatype: Datatype) -> WireType:
    """Return the wire type for a model's datatype."""
    return _BY_DATATYPE[_WIDENED.get(datatype, datatype)]


def wire_type_of(message: Any, path: str) -> WireType:
    """Return the type of a `GenericTensor`.

    Raises:
        InferenceError: INVALID_REQUEST when its dtype is missing or unknown.
    """
    matched = _BY_NUMBER.get(message.dtype)
    if matched is None:
        names = ", ".join(wire.name for wire in _TYPES)
        received = "DT_INVALID" if message.dtype == 0 else str(message.dtype)
        raise invalid(f"Expected one of {names}, got {received}", f"{path}.dtype")
    return matched


def read_tensor(message: Any, spec: TensorSpec | None, path: str) -> InputTensor:
    """Decode a `GenericTensor` as an input of the model.

    Args:
        message: the tensor.
        spec: the model's declared input: the name for a tensor without one, and the datatype to convert to if no
            number changes.
        path: path of the tensor in the request.

    Raises:
        InferenceError: INVALID_REQUEST naming the field: an unknown dtype, elements in the field of another dtype, a
            count that does not fit the shape, or a number out of range.
    """
    wire = wire_type_of(message, path)
    for field, other in FLAT_FIELDS.items():
        if field != wire.field and len(getattr(message, field)) > 0:
            raise invalid(f"Expected {wire.field} for {wire.name}, got {other.field}", f"{path}.{field}")
    values: Sequence[Any] = getattr(message, wire.field)
    shape = tuple(message.shape)
    if len(shape) > MAX_DIMENSIONS:
        raise invalid(f"Expected at most {MAX_DIMENSIONS} dimensions, got {len(shape)}", f"{path}.shape")
    if len(values) != math.prod(shape):
        expected = f"Expected {math.prod(shape)} elements for the shape {quote_value(list(shape))}"
        raise invalid(f"{expected}, got {len(values)}", f"{path}.{wire.field}")
    name: str = message.name or (spec.name if spec is not None else "")
    if wire.datatype is Datatype.BYTES:
        return BytesTensor(name=name, shape=shape, elements=[StringElement(value) for value in values])
    numbers = np.fromiter(values, wire.stored_dtype, len(values))
    datatype, data = convert_numbers(numbers, wire.datatype, spec, f"{path}.{wire.field}")
    return Tensor(name=name, datatype=datatype, data=reshape(data, shape, f"{path}.shape"))


def write_tensor(tensor: Tensor, message: Any) -> None:
    """Write `tensor` into an empty `GenericTensor`.

    Raises:
        InferenceError: UNSUPPORTED for values that GRPS cannot hold: UINT64 beyond INT64, bytes that are not UTF-8.
    """
    wire = wire_type(tensor.datatype)
    message.name = tensor.name
    message.dtype = wire.number
    message.shape.extend(tensor.shape)
    getattr(message, wire.field).extend(wire_values(tensor))


def convert_numbers(
    numbers: NDArray[Any], sent_datatype: Datatype, spec: TensorSpec | None, path: str, *, rounds: bool = False
) -> tuple[Datatype, NDArray[Any]]:
    """Convert numbers from protobuf's dtype to the datatype they were sent as, or to the declared datatype.

    With `rounds`, floating-point numbers are rounded to a narrower declared datatype.

    Raises:
        InferenceError: INVALID_REQUEST naming the first number that would change, or that would become infinite.
    """
    convert = _rounded if sent_datatype is Datatype.FP16 else _exact
    converted = convert(numbers, sent_datatype, path)
    if spec is None or spec.datatype in (sent_datatype, Datatype.BYTES):
        return sent_datatype, converted
    convert = _rounded if rounds and sent_datatype.kind == spec.datatype.kind == "f" else _exact
    if spec.datatype is Datatype.BF16:
        return spec.datatype, _rounded(convert(converted, Datatype.FP32, path), spec.datatype, path)
    return spec.datatype, convert(converted, spec.datatype, path)


def _exact(numbers: NDArray[Any], datatype: Datatype, path: str) -> NDArray[Any]:
    """Convert `numbers` to another datatype without a change of value.

    Raises:
        InferenceError: INVALID_REQUEST naming the first number that would change.
    """
    if numbers.dtype == datatype.dtype:
        return numbers
    with np.errstate(all="ignore"):
        cast = numbers.astype(datatype.dtype)
        is_unchanged = (cast.astype(numbers.dtype) == numbers) & ((cast < 0) == (numbers < 0))
        if numbers.dtype.kind == cast.dtype.kind == "f":
            is_unchanged |= np.isnan(numbers)
    _check_unchanged(numbers, is_unchanged, datatype, path)
    return cast


def _rounded(numbers: NDArray[Any], datatype: Datatype, path: str) -> NDArray[Any]:
    """Convert `numbers` to a floating-point datatype; to BF16 from FP32.

    Raises:
        InferenceError: INVALID_REQUEST naming the first number that would become infinite.
    """
    is_bf16 = datatype is Datatype.BF16
    with np.errstate(over="ignore"):
        rounded: NDArray[Any] = to_bfloat16_bits(numbers) if is_bf16 else numbers.astype(datatype.dtype)
    is_finite = np.isfinite(from_bfloat16_bits(rounded) if is_bf16 else rounded)
    _check_unchanged(numbers, is_finite | ~np.isfinite(numbers), datatype, path)
    return rounded


def _check_unchanged(numbers: NDArray[Any], is_unchanged: NDArray[np.bool_], datatype: Datatype, path: str) -> None:
    changed = np.flatnonzero(~is_unchanged)
    if changed.size:
        first = int(changed[0])
        raise invalid(f"Expected {datatype} numbers, got {numbers[first]}", f"{path}[{first}]")


def wire_values(tensor: Tensor) -> list[Any]:
    """Return the elements of a tensor in the types of its wire type.

    Raises:
        InferenceError: as `write_tensor`.
    """
    flat = tensor.values.ravel()
    if tensor.datatype is Datatype.BYTES:
        return _texts(tensor.name, flat)
    if tensor.datatype is Datatype.UINT64 and flat.size and flat.max() > np.iinfo(np.int64).max:
        message = f"{tensor.name!r} holds UINT64 numbers beyond INT64, the widest integer of GRPS; use another protocol"
        raise InferenceError(ErrorKind.UNSUPPORTED, message)
    return flat.astype(wire_type(tensor.datatype).stored_dtype).tolist()


def _texts(name: str, flat: NDArray[Any]) -> list[str]:
    try:
        return [element.decode() for element in flat]
    except UnicodeDecodeError:
        message = f"{name!r} holds bytes that are not text, which GRPS tensors cannot hold; use another protocol"
        raise InferenceError(ErrorKind.UNSUPPORTED, message) from None
