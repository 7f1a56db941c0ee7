"""Test tensors as JSON bodies."""

import json
from typing import Any

import numpy as np
import pytest

from app.plugins.tensorflow_serving.predict_tensors import TensorFormat, encode
from app.plugins.tensorflow_serving.values import json_value
from tasks.inference.error import InferenceError
from tasks.inference.response import InferenceOutput, InferenceResponse
from tasks.inference.tensor import Datatype, Tensor
from tasks.tensor_inference import Tensors
from tests.support.rejection import rejects


def response(*tensors: Tensor) -> InferenceResponse:
    output = InferenceOutput(name="", predictions=[Tensors(tensors)])
    return InferenceResponse(id="", model_name="m", model_version="1", outputs=[output])


def tensor(data: Any, datatype: Datatype = Datatype.FP32, name: str = "y") -> Tensor:
    return Tensor(name=name, datatype=datatype, data=np.array(data, datatype.dtype))


EMPTY, UNEVEN = tensor(np.zeros((0, 3))), [tensor([1, 2]), tensor([1, 2, 3], name="z")]


@pytest.mark.parametrize(
    ("tensors", "form", "body"),
    [
        ([EMPTY], TensorFormat.ROW, {"predictions": []}),
        ([EMPTY, tensor(np.zeros((0, 3)), name="z")], TensorFormat.ROW, {"predictions": []}),
        ([EMPTY], TensorFormat.COLUMN, {"outputs": []}),
        (UNEVEN, TensorFormat.COLUMN, {"outputs": {"y": [1.0, 2.0], "z": [1.0, 2.0, 3.0]}}),
    ],
)
def test_tensors_become_rows_or_columns(tensors: list[Tensor], form: TensorFormat, body: object) -> None:
    assert json.loads(encode(response(*tensors), form)) == body


@pytest.mark.parametrize(
    ("tensors", "message"), [([tensor(1.0)], "no common first dimension"), (UNEVEN, r"'y' \[2\], 'z' \[3\]")]
)
def test_outputs_without_a_common_first_dimension_have_no_rows(tensors: list[Tensor], message: str) -> None:
    with rejects(message):
        encode(response(*tensors), TensorFormat.ROW)


def test_only_output_names_ending_in_bytes_are_written_as_base64() -> None:
    data = np.empty(2, object)
    data[:] = [b"\xff\x00", 'é"\n'.encode()]
    assert json_value(tensor(data, Datatype.BYTES, name="image_bytes")) == [{"b64": "/wA="}, {"b64": "w6kiCg=="}]
    with pytest.raises(InferenceError, match="bytes that are not text"):
        json_value(tensor(data, Datatype.BYTES, name="bytes_of_image"))
    assert json_value(tensor(data[1:], Datatype.BYTES, name="text")) == ['é"\n']
