"""Test tensors as JSON bodies."""

import json
from typing import Any

import numpy as np
import pytest

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


def test_only_output_names_ending_in_bytes_are_written_as_base64() -> None:
    data = np.empty(2, object)
    data[:] = [b"\xff\x00", 'é"\n'.encode()]
    assert json_value(tensor(data, Datatype.BYTES, name="image_bytes")) == [{"b64": "/wA="}, {"b64": "w6kiCg=="}]
    with pytest.raises(InferenceError, match="bytes that are not text"):
        json_value(tensor(data, Datatype.BYTES, name="bytes_of_image"))
    assert json_value(tensor(data[1:], Datatype.BYTES, name="text")) == ['é"\n']
