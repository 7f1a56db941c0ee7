"""Convert `GenericTensor` to and from neutral tensors.

GRPS has fewer datatypes than models. A missing datatype is sent as the narrowest wider one, and is converted back to
the model's datatype if no value changes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.wire.bytes_elements import StringElement
from app.core.wire.json_tensors import check_shape, to_bfloat16_bits
from app.core.wire.proto_tensors import ElementFields, check_unchanged, convert_exactly
from app.plugins.grps.messages import GenericTensor
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec, from_bfloat16_bits

ELEMENTS = ElementFields(
    GenericTensor,
    {
        Datatype.UINT8: "flat_uint8",
        Datatype.INT8: "flat_int8",
        Datatype.INT16: "flat_int16",
        Datatype.INT32: "flat_int32",
        Datatype.INT64: "flat_int64",
        Datatype.FP16: "flat_float16",
        Datatype.FP32: "flat_float32",
        Datatype.FP64: "flat_float64",
        Datatype.BYTES: "flat_string",
    },
)
"""The fields with the elements of the datatypes that GRPS has."""

_DTYPES = {datatype: f"DT_{name.removeprefix('flat_').upper()}" for datatype, name in ELEMENTS.names.items()}
_NUMBERS = GenericTensor.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_name
_DATATYPES: dict[int, Datatype] = {_NUMBERS[name].number: datatype for datatype, name in _DTYPES.items()}

_WIDENED: dict[Datatype, Datatype] = {
    Datatype.BOOL: Datatype.UINT8,
    Datatype.UINT16: Datatype.INT32,
    Datatype.UINT32: Datatype.INT64,
    Datatype.UINT64: Datatype.INT64,
    Datatype.BF16: Datatype.FP32,
}
"""The datatypes that GRPS lacks, and those that they are sent as."""


def sent_datatype(datatype: Datatype) -> Datatype:
    """Return the datatype as which GRPS sends numbers of a model's datatype."""
    return _WIDENED.get(datatype, datatype)


def dtype_name(datatype: Datatype) -> str:
    """Return the `DataType` for a model's datatype."""
    return _DTYPES[sent_datatype(datatype)]


def datatype_of(message: Any, path: str) -> Datatype:
    """Return the datatype of a `GenericTensor`. Raise INVALID_REQUEST when its dtype is missing or unknown."""
    datatype = _DATATYPES.get(message.dtype)
    if datatype is None:
        received = "DT_INVALID" if message.dtype == 0 else str(message.dtype)
        raise invalid(f"Expected one of {', '.join(_DTYPES.values())}, got {received}", f"{path}.dtype")
    return datatype


def read_tensor(message: Any, spec: TensorSpec | None, path: str) -> InputTensor:
    """Decode a `GenericTensor` as an input of the model.

    Raise INVALID_REQUEST naming the field: an unknown dtype, elements in the field of another dtype, a count that does
    not fit the shape, or a number out of range.

    Args:
        message: the tensor.
        spec: the model's declared input: the name for a tensor without one, and the datatype to convert to if no
            number changes.
        path: path of the tensor in the request.
    """
    sent = datatype_of(message, path)
    shape = tuple(message.shape)
    check_shape(shape, f"{path}.shape")
    values = ELEMENTS.read(message, sent, shape, path)
    name: str = message.name or (spec.name if spec is not None else "")
    if sent is Datatype.BYTES:
        return BytesTensor(name=name, shape=shape, elements=[StringElement(value) for value in values])
    numbers = ELEMENTS.to_array(values, sent)
    datatype, data = convert_numbers(numbers, sent, spec, f"{path}.{ELEMENTS.names[sent]}")
    return Tensor(name=name, datatype=datatype, data=data.reshape(shape))


def write_tensor(tensor: Tensor, message: Any) -> None:
    """Write `tensor` into an empty `GenericTensor`.

    Raise UNSUPPORTED for values that GRPS cannot hold: UINT64 beyond INT64, bytes that are not UTF-8.
    """
    datatype = sent_datatype(tensor.datatype)
    message.name = tensor.name
    message.dtype = _NUMBERS[_DTYPES[datatype]].number
    message.shape.extend(tensor.shape)
    getattr(message, ELEMENTS.names[datatype]).extend(wire_values(tensor))


def convert_numbers(
    numbers: NDArray[Any], sent: Datatype, spec: TensorSpec | None, path: str, *, rounds: bool = False
) -> tuple[Datatype, NDArray[Any]]:
    """Convert numbers from protobuf's dtype to the datatype they were sent as, or to the declared datatype.

    With `rounds`, floating-point numbers are rounded to a narrower declared datatype. Raise INVALID_REQUEST naming the
    first number that would change, or that would become infinite.
    """
    convert = _rounded if sent is Datatype.FP16 else convert_exactly
    converted = convert(numbers, sent, path)
    if spec is None or spec.datatype in (sent, Datatype.BYTES):
        return sent, converted
    convert = _rounded if rounds and sent.kind == spec.datatype.kind == "f" else convert_exactly
    if spec.datatype is Datatype.BF16:
        return spec.datatype, _rounded(convert(converted, Datatype.FP32, path), spec.datatype, path)
    return spec.datatype, convert(converted, spec.datatype, path)


def _rounded(numbers: NDArray[Any], datatype: Datatype, path: str) -> NDArray[Any]:
    """Convert `numbers` to a floating-point datatype; to BF16 from FP32.

    Raise INVALID_REQUEST naming the first number that would become infinite.
    """
    is_bf16 = datatype is Datatype.BF16
    with np.errstate(over="ignore"):
        rounded: NDArray[Any] = to_bfloat16_bits(numbers) if is_bf16 else numbers.astype(datatype.dtype)
    is_finite = np.isfinite(from_bfloat16_bits(rounded) if is_bf16 else rounded)
    check_unchanged(numbers, is_finite | ~np.isfinite(numbers), datatype, path)
    return rounded


def wire_values(tensor: Tensor) -> list[Any]:
    """Return the elements of a tensor in the types of its wire type. Raise InferenceError as `write_tensor`."""
    flat = tensor.values.ravel()
    if tensor.datatype is Datatype.BYTES:
        return _texts(tensor.name, flat)
    if tensor.datatype is Datatype.UINT64 and flat.size and flat.max() > np.iinfo(np.int64).max:
        message = f"{tensor.name!r} holds UINT64 numbers beyond INT64, the widest integer of GRPS; use another protocol"
        raise InferenceError(ErrorKind.UNSUPPORTED, message)
    return flat.astype(ELEMENTS.stored_dtypes[ELEMENTS.names[sent_datatype(tensor.datatype)]]).tolist()


def _texts(name: str, flat: NDArray[Any]) -> list[str]:
    try:
        return [element.decode() for element in flat]
    except UnicodeDecodeError:
        message = f"{name!r} holds bytes that are not text, which GRPS tensors cannot hold; use another protocol"
        raise InferenceError(ErrorKind.UNSUPPORTED, message) from None
