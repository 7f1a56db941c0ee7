"""Test tensors as JSON bodies."""

import json
import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from app.plugins.tensorflow_serving.predict_tensors import TensorFormat, encode
from app.plugins.tensorflow_serving.values import json_value
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.response import InferenceOutput, InferenceResponse
from tasks.inference.tensor import Datatype, Tensor
from tasks.tensor_inference import Tensors


def response(*tensors: Tensor) -> InferenceResponse:
    output = InferenceOutput(name="", predictions=[Tensors(tensors)])
    return InferenceResponse(id="", model_name="m", model_version="1", outputs=[output])


def tensor(data: Any, datatype: Datatype = Datatype.FP32, name: str = "y") -> Tensor:
    return Tensor(name=name, datatype=datatype, data=np.array(data, datatype.dtype))


@given(arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32)))
def test_floats_round_trip(values: Any) -> None:
    body = encode(response(tensor(values)), TensorFormat.ROW)
    read: list[Any] = json.loads(body)["predictions"]
    assert np.array_equal(np.array(read, np.float32), values, equal_nan=True)
    # Clients distinguish floats from integers by their format.
    assert all(isinstance(number, float) for number in read)


def test_special_numbers_are_written_by_their_names() -> None:
    body = encode(response(tensor([math.nan, math.inf, -math.inf])), TensorFormat.COLUMN)
    assert body == b'{"outputs": [NaN, Infinity, -Infinity]}'


@given(arrays(np.int64, array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
def test_nesting_matches_the_shape(data: Any) -> None:
    assert json_value(tensor(data, Datatype.INT64)) == data.tolist()


def test_several_outputs_are_objects_by_name() -> None:
    two_outputs = response(tensor([[1, 2], [3, 4]]), tensor([True, False], Datatype.BOOL, name="z"))
    assert json.loads(encode(two_outputs, TensorFormat.ROW)) == {
        "predictions": [{"y": [1.0, 2.0], "z": True}, {"y": [3.0, 4.0], "z": False}]
    }
    assert json.loads(encode(two_outputs, TensorFormat.COLUMN)) == {
        "outputs": {"y": [[1.0, 2.0], [3.0, 4.0]], "z": [True, False]}
    }


def test_no_rows_are_an_empty_list() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert json.loads(encode(response(tensor(empty)), TensorFormat.ROW)) == {"predictions": []}
    assert json.loads(encode(response(tensor(empty), tensor(empty, name="z")), TensorFormat.ROW)) == {"predictions": []}
    assert json.loads(encode(response(tensor(empty)), TensorFormat.COLUMN)) == {"outputs": []}


def test_scalar_in_row_format_is_rejected() -> None:
    with pytest.raises(InferenceError) as caught:
        encode(response(tensor(1.0)), TensorFormat.ROW)
    assert "no common first dimension" in str(caught.value)
    assert json.loads(encode(response(tensor(1.0)), TensorFormat.COLUMN)) == {"outputs": 1.0}


def test_rows_of_different_batch_sizes_are_rejected() -> None:
    uneven = response(tensor([1, 2]), tensor([1, 2, 3], name="z"))
    with pytest.raises(InferenceError) as caught:
        encode(uneven, TensorFormat.ROW)
    assert "'y' [2], 'z' [3]" in str(caught.value)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    assert json.loads(encode(uneven, TensorFormat.COLUMN)) == {"outputs": {"y": [1.0, 2.0], "z": [1.0, 2.0, 3.0]}}


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16, Datatype.UINT16])
@pytest.mark.parametrize("form", TensorFormat)
def test_half_precision_and_uint16_cannot_be_written(datatype: Datatype, form: TensorFormat) -> None:
    with pytest.raises(InferenceError, match=f"{datatype} has no form in JSON"):
        encode(response(tensor([1], datatype)), form)


def test_only_output_names_ending_in_bytes_are_written_as_base64() -> None:
    data = np.empty(2, object)
    data[:] = [b"\xff\x00", 'é"\n'.encode()]
    assert json_value(tensor(data, Datatype.BYTES, name="image_bytes")) == [{"b64": "/wA="}, {"b64": "w6kiCg=="}]
    with pytest.raises(InferenceError, match="bytes that are not text"):
        json_value(tensor(data, Datatype.BYTES, name="bytes_of_image"))
    assert json_value(tensor(data[1:], Datatype.BYTES, name="text")) == ['é"\n']


def test_output_name_is_escaped() -> None:
    names = {'a"b': [1], "é": [2]}
    encoded = encode(response(*(tensor(data, name=name) for name, data in names.items())), TensorFormat.COLUMN)
    assert cast("dict[str, Any]", json.loads(encoded))["outputs"] == names
