"""Test `TensorProto` in all its forms: raw contents, typed values, and values that stand for the rest of a tensor."""

import re
from typing import Any

import numpy as np
import pytest

from app.core.wire.json_tensors import to_bfloat16_bits
from app.plugins.tensorflow_serving.grpc.messages import encode_tensor, read_tensor_proto
from app.plugins.tensorflow_serving.proto import message_class
from app.plugins.tensorflow_serving.signatures import enum_name
from tasks.inference.error import ErrorKind
from tasks.inference.limits import Limits
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tests.support.rejection import rejects

TensorProto = message_class("tensorflow.TensorProto")
LIMITS = Limits(max_request_bytes=1000, max_entries=10)
NUMERIC = [datatype for datatype in Datatype if datatype is not Datatype.BYTES]


def tensor_proto(datatype: Datatype, *shape: int, **fields: Any) -> Any:
    return TensorProto(dtype=enum_name(datatype), tensor_shape={"dim": [{"size": size} for size in shape]}, **fields)


def read_numbers(message: Any) -> Tensor:
    tensor = read_tensor_proto("x", message, LIMITS)
    assert isinstance(tensor, Tensor)
    return tensor


def sample(datatype: Datatype) -> Tensor:
    """Return a tensor of 2 x 2 values that include the extremes of the datatype."""
    if datatype is Datatype.BF16:
        data = to_bfloat16_bits(np.array([0, 1.5, -2, np.inf], np.float32))
    elif datatype.kind in "iu":
        limits = np.iinfo(datatype.dtype)
        data = np.array([limits.min, limits.max, 0, 1], datatype.dtype)
    else:
        data = np.array([0, 1.5, -2, 1], datatype.dtype)
    return Tensor(name="x", datatype=datatype, data=data.reshape(2, 2))


@pytest.mark.parametrize("datatype", NUMERIC)
def test_typed_values_are_read_as_they_are_written(datatype: Datatype) -> None:
    tensor = sample(datatype)
    message = encode_tensor(tensor)
    assert not message.tensor_content
    decoded = read_numbers(TensorProto.FromString(message.SerializeToString()))
    assert (decoded.datatype, decoded.shape, decoded.data.dtype) == (datatype, (2, 2), datatype.dtype)
    np.testing.assert_array_equal(decoded.data, tensor.data)


@pytest.mark.parametrize("datatype", NUMERIC)
def test_raw_content_has_the_same_values(datatype: Datatype) -> None:
    tensor = sample(datatype)
    decoded = read_numbers(tensor_proto(datatype, 2, 2, tensor_content=tensor.data.tobytes()))
    np.testing.assert_array_equal(decoded.data, tensor.data)


@pytest.mark.parametrize("datatype", NUMERIC)
def test_last_value_stands_for_the_rest(datatype: Datatype) -> None:
    message = encode_tensor(Tensor(name="x", datatype=datatype, data=sample(datatype).data.ravel()[:2]))
    message.tensor_shape.CopyFrom(tensor_proto(datatype, 2, 3).tensor_shape)
    values = read_numbers(message).data.ravel()
    np.testing.assert_array_equal(values[1:], values[[1, 1, 1, 1, 1]])
    assert not np.array_equal(values[0], values[1])


def test_tensor_without_values_is_zero() -> None:
    assert read_numbers(tensor_proto(Datatype.FP32, 3)).data.tolist() == [0, 0, 0]
    assert read_numbers(tensor_proto(Datatype.INT64)).data.tolist() == 0
    assert read_numbers(tensor_proto(Datatype.FP32, 0, 2)).shape == (0, 2)


def test_narrow_integers_keep_the_lowest_bits() -> None:
    assert read_numbers(tensor_proto(Datatype.INT8, 2, int_val=[300, -1])).data.tolist() == [44, -1]
    assert read_numbers(tensor_proto(Datatype.UINT8, 1, int_val=[-1])).data.tolist() == [255]


def test_strings_are_elements_and_the_last_stands_for_the_rest() -> None:
    data = np.array([b"a", b"\xff"], object)
    message = encode_tensor(Tensor(name="x", datatype=Datatype.BYTES, data=data))
    message.tensor_shape.CopyFrom(tensor_proto(Datatype.BYTES, 3).tensor_shape)
    tensor = read_tensor_proto("x", message, LIMITS)
    assert isinstance(tensor, BytesTensor)
    assert (tensor.shape, [element.binary() for element in tensor.elements]) == ((3,), [b"a", b"\xff", b"\xff"])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (TensorProto(dtype="DT_COMPLEX64"), "Expected a dtype that models here have, got 8"),
        (TensorProto(dtype=999), "Expected a dtype that models here have, got 999"),
        (tensor_proto(Datatype.FP32, -1), "Expected sizes of 0 or more, got [-1]"),
        (TensorProto(dtype="DT_FLOAT", tensor_shape={"unknown_rank": True}), "Expected a shape of known rank"),
        (tensor_proto(Datatype.FP32, 0, 2**62, 4), f"Expected sizes that can be counted, got [0, {2**62}, 4]"),
        (tensor_proto(Datatype.FP32, *[1] * 33), "Expected at most 32 dimensions, got 33"),
        (tensor_proto(Datatype.FP32, 2, tensor_content=bytes(7)), "Expected 8 bytes in tensor_content, got 7"),
        (tensor_proto(Datatype.FP32, 1, float_val=[1, 2]), "Expected at most 1 values in float_val, got 2"),
        (tensor_proto(Datatype.BYTES, 1, tensor_content=b"a"), "Expected strings in string_val, not in tensor_content"),
    ],
)
def test_tensor_that_cannot_be_read_is_rejected(message: Any, reason: str) -> None:
    with rejects(re.escape(f"x: {reason}") + "$"):
        read_tensor_proto("x", message, LIMITS)


def test_repeated_values_may_not_exceed_the_size_of_a_request() -> None:
    for message, expected in (
        (tensor_proto(Datatype.FP64, 2**40, double_val=[1]), r"1,000 bytes .*-request-bytes\), got 8,796,093,022,208"),
        (tensor_proto(Datatype.BYTES, 11, string_val=[b"a"]), r"10 BYTES elements in a tensor .*-entries\), got 11"),
    ):
        with rejects(f"Expected at most {expected}", kind=ErrorKind.TOO_LARGE):
            read_tensor_proto("x", message, LIMITS)
