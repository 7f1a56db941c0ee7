"""Convert `TensorProto`, `Input` and the results of examples to and from tensors and examples.

The rules for tensors come from the real server (tensorflow/tensorflow, `tensor.cc`).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.wire.bytes_elements import BinaryElement
from app.core.wire.json_tensors import check_shape
from app.core.wire.proto_tensors import ElementFields
from app.plugins.tensorflow_serving.examples import Example, Feature, FeatureKind
from app.plugins.tensorflow_serving.proto import message_class
from app.plugins.tensorflow_serving.signatures import DATATYPES, SHORT_NAMES, enum_name
from tasks.inference.error import invalid
from tasks.inference.limits import Limits, too_large
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor

_TensorProto = message_class("tensorflow.TensorProto")
_DTYPES = _TensorProto.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_number

_INT_DATATYPES = (Datatype.INT8, Datatype.INT16, Datatype.INT32, Datatype.UINT8, Datatype.UINT16)
_ELEMENTS = ElementFields(
    _TensorProto,
    {
        **{datatype: f"{name}_val" for datatype, name in SHORT_NAMES.items()},
        **dict.fromkeys(_INT_DATATYPES, "int_val"),
        Datatype.BF16: "half_val",
    },
)

_ClassificationResult = message_class("tensorflow.serving.ClassificationResult")
_RegressionResult = message_class("tensorflow.serving.RegressionResult")


def read_tensor_proto(name: str, message: Any, limits: Limits) -> InputTensor:
    """Return the tensor of a `TensorProto`. Its values may be in `tensor_content` or in the field of its datatype.

    A field with fewer values than the shape ends with its last value repeated, or is all zeros without any. Integers of
    a narrower datatype keep the lowest bits. Raise INVALID_REQUEST; TOO_LARGE for a tensor that would be larger than a
    request may be.
    """
    number = message.dtype
    datatype = DATATYPES.get(_DTYPES[number].name) if number in _DTYPES else None
    if datatype is None:
        raise invalid(f"Expected a dtype that models here have, got {number}", name)
    shape = _shape(name, message.tensor_shape)
    size = math.prod(shape)
    _check_size(name, datatype, size, limits)
    field = _ELEMENTS.names[datatype]
    values: Sequence[Any] = getattr(message, field)
    if len(values) > size:
        raise invalid(f"Expected at most {size} values in {field}, got {len(values)}", name)
    if datatype is Datatype.BYTES:
        if message.tensor_content:
            raise invalid("Expected strings in string_val, not in tensor_content", name)
        padding = [values[-1] if values else b""] * (size - len(values))
        return BytesTensor(name=name, shape=shape, elements=[BinaryElement(value) for value in (*values, *padding)])
    if message.tensor_content and size:
        return Tensor(name=name, datatype=datatype, data=_content(name, datatype, message.tensor_content, shape))
    # The bits of 16-bit floating-point numbers, and integers, lose their upper half.
    stored = _ELEMENTS.to_array(values, datatype)
    data = stored.astype(np.uint16).view(datatype.dtype) if field == "half_val" else stored.astype(datatype.dtype)
    if len(values) < size:
        data = np.concatenate([data, np.full(size - len(values), data[-1] if len(values) else 0, datatype.dtype)])
    return Tensor(name=name, datatype=datatype, data=data.reshape(shape))


def encode_tensor(tensor: Tensor) -> Any:
    """Return a tensor as a `TensorProto` with its values in the field of its datatype, as the real server does."""
    dimensions = [{"size": size} for size in tensor.shape]
    message = _TensorProto(dtype=enum_name(tensor.datatype), tensor_shape={"dim": dimensions})
    flat = tensor.data.ravel()
    if tensor.datatype is Datatype.FP16:
        flat = flat.view(np.uint16)
    getattr(message, _ELEMENTS.names[tensor.datatype]).extend(flat.tolist())
    return message


def _check_size(name: str, datatype: Datatype, size: int, limits: Limits) -> None:
    """Reject a tensor that is larger than a request may be: a few values may stand for a tensor of any size."""
    if datatype is Datatype.BYTES:
        if size > limits.max_entries:
            raise too_large(limits.max_entries, "BYTES elements in a tensor (--max-entries)", size, name)
    elif size * datatype.dtype.itemsize > limits.max_request_bytes:
        unit = "bytes in a tensor (--max-request-bytes)"
        raise too_large(limits.max_request_bytes, unit, size * datatype.dtype.itemsize, name)


def _shape(name: str, message: Any) -> tuple[int, ...]:
    shape = tuple(dimension.size for dimension in message.dim)
    if message.unknown_rank:
        raise invalid("Expected a shape of known rank", name)
    check_shape(shape, name)
    return shape


def _content(name: str, datatype: Datatype, content: bytes, shape: tuple[int, ...]) -> NDArray[Any]:
    expected = math.prod(shape) * datatype.dtype.itemsize
    if len(content) != expected:
        raise invalid(f"Expected {expected} bytes in tensor_content, got {len(content)}", name)
    if datatype is Datatype.BOOL:
        return np.frombuffer(content, np.uint8).astype(np.bool_).reshape(shape)
    return np.frombuffer(content, datatype.dtype.newbyteorder("<")).reshape(shape)


def read_input(message: Any) -> Sequence[Example]:
    """Return the examples of an `Input`. Each includes the features of the shared context, which it may override.

    Raise INVALID_REQUEST for an input without examples.
    """
    kind = message.WhichOneof("kind")
    content = getattr(message, kind) if kind else None
    if content is None or not content.examples:
        raise invalid("Expected at least one example, got none", "input")
    context: Example = _example(content.context) if kind == "example_list_with_context" else {}
    return [{**context, **_example(example)} for example in content.examples]


def encode_classifications(rows: Sequence[Any]) -> Any:
    """Return pairs of label and score, a row for each example, as a `ClassificationResult`."""
    classes = [[{"label": label, "score": score} for label, score in row] for row in rows]
    return _ClassificationResult(classifications=[{"classes": row} for row in classes])


def encode_regressions(numbers: Sequence[float]) -> Any:
    """Return a number for each example as a `RegressionResult`."""
    return _RegressionResult(regressions=[{"value": number} for number in numbers])


def _example(message: Any) -> Example:
    return {name: _feature(feature) for name, feature in message.features.feature.items()}


def _feature(message: Any) -> Feature:
    field = message.WhichOneof("kind")
    if field is None:
        return Feature(None, ())
    values = getattr(message, field).value
    kind = FeatureKind(field.removesuffix("_list"))
    return Feature(kind, [BinaryElement(value) for value in values] if kind is FeatureKind.BYTES else list(values))
