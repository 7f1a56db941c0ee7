"""Test numbers and tensors as JSON text."""

import json
import math
import re
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from app.protocols.tensorflow_serving.json_text import decimals, tensor_texts
from app.protocols.tensorflow_serving.predict_tensors import TensorFormat, encode
from tasks.inference.error import InferenceError
from tasks.inference.response import InferenceOutput, InferenceResponse
from tasks.inference.tensor import Datatype, Tensor
from tasks.tensor_inference import Tensors


def response(*tensors: Tensor) -> InferenceResponse:
    output = InferenceOutput(name="", predictions=[Tensors(tensors)])
    return InferenceResponse(id="", model_name="m", model_version="1", outputs=[output])


def tensor(data: Any, datatype: Datatype = Datatype.FP32, name: str = "y") -> Tensor:
    return Tensor(name=name, datatype=datatype, data=np.array(data, datatype.dtype))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        # The first six cases are those of TensorFlow Serving's own test.
        (9000000, "9e+06"),
        (999999, "999999.0"),
        (0.5, "0.5"),
        (0.0003, "0.0003"),
        (0.00003, "3e-05"),
        (555557.5, "555557.5"),
        (0.1, "0.1"),
        (0.2, "0.2"),
        (42, "42.0"),
        (-0.0, "-0.0"),
        (16777216, "16777216.0"),
        (1e20, "1e+20"),
        (3.14159274, "3.14159274"),
        (3.4028234663852886e38, "3.40282347e+38"),
        (1.401298464324817e-45, "1.4013e-45"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_float_is_written_with_six_or_all_digits(number: float, text: str) -> None:
    assert decimals(np.array([number], np.float32)) == [text]


def test_double_is_written_with_up_to_17_digits() -> None:
    assert decimals(np.array([1 / 3, 0.1, 1e22, 123456789.0])) == ["0.33333333333333331", "0.1", "1e+22", "123456789.0"]


@given(arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32)))
def test_floats_round_trip(values: Any) -> None:
    texts = decimals(values)
    assert np.array_equal(np.array([float(text) for text in texts], np.float32), values, equal_nan=True)
    assert all(re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?|NaN|-?Infinity", text) for text in texts)
    # Clients distinguish floats from integers by their format.
    assert all("." in text or "e" in text or "n" in text.lower() for text in texts)


@given(arrays(np.float64, st.integers(0, 20), elements=st.floats()))
def test_doubles_round_trip(values: Any) -> None:
    assert np.array_equal(np.array([float(text) for text in decimals(values)]), values, equal_nan=True)


@given(arrays(np.int64, array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
def test_nesting_matches_the_shape(data: Any) -> None:
    (complete,) = tensor_texts(tensor(data, Datatype.INT64), rows=False)
    assert json.loads(complete) == data.tolist()
    if data.ndim:
        rows = tensor_texts(tensor(data, Datatype.INT64), rows=True)
        assert [json.loads(row) for row in rows] == data.tolist()


def test_objects_are_written_on_several_lines_and_arrays_on_one_line() -> None:
    two_outputs = response(tensor([[1, 2], [3, 4]]), tensor([True, False], Datatype.BOOL, name="z"))
    assert encode(two_outputs, TensorFormat.ROW).decode() == (
        '{\n    "predictions": [\n        {\n            "y": [1.0, 2.0],\n            "z": true\n        },\n'
        '        {\n            "y": [3.0, 4.0],\n            "z": false\n        }\n    ]\n}'
    )
    assert encode(two_outputs, TensorFormat.COLUMN).decode() == (
        '{\n    "outputs": {\n        "y": [[1.0, 2.0], [3.0, 4.0]],\n        "z": [true, false]\n    }\n}'
    )


def test_no_rows_are_an_empty_list() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert json.loads(encode(response(tensor(empty)), TensorFormat.ROW)) == {"predictions": []}
    assert json.loads(encode(response(tensor(empty), tensor(empty, name="z")), TensorFormat.ROW)) == {"predictions": []}
    assert json.loads(encode(response(tensor(empty)), TensorFormat.COLUMN)) == {"outputs": []}


def test_scalar_in_row_format_is_rejected() -> None:
    with pytest.raises(InferenceError) as caught:
        encode(response(tensor(1.0)), TensorFormat.ROW)
    assert str(caught.value) == "Tensor name: y has no shape information "
    assert json.loads(encode(response(tensor(1.0)), TensorFormat.COLUMN)) == {"outputs": 1.0}


def test_rows_of_different_batch_sizes_are_rejected() -> None:
    uneven = response(tensor([1, 2]), tensor([1, 2, 3], name="z"))
    with pytest.raises(InferenceError) as caught:
        encode(uneven, TensorFormat.ROW)
    assert str(caught.value) == "Tensor name: z has inconsistent batch size: 3 expecting: 2"
    assert json.loads(encode(uneven, TensorFormat.COLUMN)) == {"outputs": {"y": [1.0, 2.0], "z": [1.0, 2.0, 3.0]}}


@pytest.mark.parametrize(
    ("datatype", "name"), [(Datatype.FP16, "half"), (Datatype.BF16, "bfloat16"), (Datatype.UINT16, "uint16")]
)
@pytest.mark.parametrize("form", TensorFormat)
def test_half_precision_and_uint16_cannot_be_written(datatype: Datatype, name: str, form: TensorFormat) -> None:
    with pytest.raises(InferenceError, match=f"^Failed to write JSON value for tensor type: {name}$"):
        encode(response(tensor([1], datatype)), form)


def test_only_output_names_ending_in_bytes_are_written_as_base64() -> None:
    data = np.empty(2, object)
    data[:] = [b"\xff\x00", 'é"\n'.encode()]
    (bytes_text,) = tensor_texts(tensor(data, Datatype.BYTES, name="image_bytes"), rows=False)
    assert json.loads(bytes_text) == [{"b64": "/wA="}, {"b64": "w6kiCg=="}]
    with pytest.raises(InferenceError, match=r"^Failed to write JSON value for tensor type: string$"):
        tensor_texts(tensor(data, Datatype.BYTES, name="bytes_of_image"), rows=False)
    (text,) = tensor_texts(tensor(data[1:], Datatype.BYTES, name="text"), rows=False)
    assert json.loads(text) == ['é"\n']


def test_output_name_is_escaped() -> None:
    names = {'a"b': [1], "é": [2]}
    encoded = encode(response(*(tensor(data, name=name) for name, data in names.items())), TensorFormat.COLUMN)
    assert cast("dict[str, Any]", json.loads(encoded))["outputs"] == names
