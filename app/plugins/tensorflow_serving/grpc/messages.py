"""Convert `TensorProto`, `Input` and the results of examples to and from tensors and examples.

The rules for tensors are those of the real server (tensorflow/tensorflow, `tensor.cc`).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.wire.bytes_elements import BinaryElement
from app.plugins.tensorflow_serving.examples import Example, Feature, FeatureKind
from app.plugins.tensorflow_serving.proto import message_class
from app.plugins.tensorflow_serving.signatures import DATATYPES, enum_name, short_name
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import Limits, too_large
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor

_TensorProto = message_class("tensorflow.TensorProto")
_DTYPES = _TensorProto.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_number

_MAX_DIMENSIONS = 64
"""NumPy's limit; TensorFlow has 254."""

_INT_DATATYPES = (Datatype.INT8, Datatype.INT16, Datatype.INT32, Datatype.UINT8, Datatype.UINT16)
_FIELDS = {
    **{datatype: f"{short_name(datatype)}_val" for datatype in Datatype},
    **dict.fromkeys(_INT_DATATYPES, "int_val"),
    Datatype.BF16: "half_val",
}
"""The field of `TensorProto` with the values of each datatype."""

_ClassificationResult = message_class("tensorflow.serving.ClassificationResult")
_RegressionResult = message_class("tensorflow.serving.RegressionResult")


def read_tensor_proto(name: str, message: Any, limits: Limits) -> InputTensor:
    """Return the tensor of a `TensorProto`. Its values may be in `tensor_content` or in the field of its datatype.

    A field with fewer values than the shape ends with its last value repeated, or is all zeros without any. Integers
    of a narrower datatype keep the lowest bits.

    Raises:
        InferenceError: INVALID_REQUEST; TOO_LARGE for a tensor that would be larger than a request may be.
    """
    number = message.dtype
    datatype = DATATYPES.get(_DTYPES[number].name) if number in _DTYPES else None
    if datatype is None:
        raise _parsing_error(name, f"expected a dtype that models here have, got {number}")
    shape = _shape(name, message.tensor_shape)
    size = math.prod(shape)
    _check_size(name, datatype, size, limits)
    field = _FIELDS[datatype]
    values: Sequence[Any] = getattr(message, field)
    if len(values) > size:
        raise _parsing_error(name, f"expected at most {size} values in {field}, got {len(values)}")
    if datatype is Datatype.BYTES:
        if message.tensor_content:
            raise _parsing_error(name, "expected strings in string_val, not in tensor_content")
        padding = [values[-1] if values else b""] * (size - len(values))
        return BytesTensor(name=name, shape=shape, elements=[BinaryElement(value) for value in (*values, *padding)])
    if message.tensor_content and size:
        return Tensor(name=name, datatype=datatype, data=_content(name, datatype, message.tensor_content, shape))
    data = _numbers(datatype, values)
    if len(values) < size:
        data = np.concatenate([data, np.full(size - len(values), data[-1] if len(values) else 0, datatype.dtype)])
    return Tensor(name=name, datatype=datatype, data=data.reshape(shape))


def encode_tensor(tensor: Tensor) -> Any:
    """Return a tensor as a `TensorProto` with its values in the field of its datatype, as the real server does."""
    message = _TensorProto(dtype=enum_name(tensor.datatype))
    for size in tensor.shape:
        message.tensor_shape.dim.add(size=size)
    message.tensor_shape.SetInParent()
    flat = tensor.data.ravel()
    if tensor.datatype is Datatype.FP16:
        flat = flat.view(np.uint16)
    getattr(message, _FIELDS[tensor.datatype]).extend(flat.tolist())
    return message


def _check_size(name: str, datatype: Datatype, size: int, limits: Limits) -> None:
    """Reject a tensor that is larger than a request may be: a few values may stand for a tensor of any size."""
    if datatype is Datatype.BYTES:
        if size > limits.max_entries:
            raise too_large(limits.max_entries, "BYTES elements in a tensor", size, name)
    elif size * datatype.dtype.itemsize > limits.max_request_bytes:
        raise too_large(limits.max_request_bytes, "bytes in a tensor", size * datatype.dtype.itemsize, name)


def _shape(name: str, message: Any) -> tuple[int, ...]:
    shape = tuple(dimension.size for dimension in message.dim)
    if message.unknown_rank or any(size < 0 for size in shape):
        raise _parsing_error(name, "expected a shape of known sizes")
    if len(shape) > _MAX_DIMENSIONS:
        raise invalid(f"Expected a tensor of at most {_MAX_DIMENSIONS} dimensions, got {len(shape)}", name)
    if 0 in shape and math.prod(filter(None, shape)) > np.iinfo(np.intp).max:
        raise _parsing_error(name, "expected a shape of sizes that can be counted")
    return shape


def _content(name: str, datatype: Datatype, content: bytes, shape: tuple[int, ...]) -> NDArray[Any]:
    expected = math.prod(shape) * datatype.dtype.itemsize
    if len(content) != expected:
        raise _parsing_error(name, f"expected {expected} bytes in tensor_content, got {len(content)}")
    if datatype is Datatype.BOOL:
        return np.frombuffer(content, np.uint8).astype(np.bool_).reshape(shape)
    return np.frombuffer(content, datatype.dtype.newbyteorder("<")).reshape(shape)


def _numbers(datatype: Datatype, values: Sequence[Any]) -> NDArray[Any]:
    """Return the values of a field; the bits of 16-bit floating-point numbers, and integers, lose their upper half."""
    if datatype in (Datatype.FP16, Datatype.BF16):
        return np.fromiter(values, np.int32, len(values)).astype(np.uint16).view(datatype.dtype)
    stored_dtype = np.dtype(np.int32) if _FIELDS[datatype] == "int_val" else datatype.dtype
    return np.fromiter(values, stored_dtype, len(values)).astype(datatype.dtype)


def _parsing_error(name: str, reason: str) -> InferenceError:
    """Return the real server's error, with the reason behind it."""
    return invalid(f"tensor parsing error: {name}: {reason}")


def read_input(message: Any) -> Sequence[Example]:
    """Return the examples of an `Input`. Each includes the features of the shared context, which it may override.

    Raises:
        InferenceError: INVALID_REQUEST for an input without examples.
    """
    kind = message.WhichOneof("kind")
    content = getattr(message, kind) if kind else None
    if content is None or not content.examples:
        raise invalid("Input is empty.")
    context: Example = _example(content.context) if kind == "example_list_with_context" else {}
    return [{**context, **_example(example)} for example in content.examples]


def encode_classifications(rows: Sequence[Any]) -> Any:
    """Return pairs of label and score, a row for each example, as a `ClassificationResult`."""
    result = _ClassificationResult()
    for row in rows:
        classes = result.classifications.add().classes
        for label, score in row:
            classes.add(label=label, score=score)
    return result


def encode_regressions(numbers: Sequence[float]) -> Any:
    """Return a number for each example as a `RegressionResult`."""
    result = _RegressionResult()
    for number in numbers:
        result.regressions.add(value=number)
    return result


def _example(message: Any) -> Example:
    return {name: _feature(feature) for name, feature in message.features.feature.items()}


def _feature(message: Any) -> Feature:
    field = message.WhichOneof("kind")
    if field is None:
        return Feature(None, ())
    values = getattr(message, field).value
    kind = FeatureKind(field.removesuffix("_list"))
    return Feature(kind, [BinaryElement(value) for value in values] if kind is FeatureKind.BYTES else list(values))
