"""Test instances of tensor models as tensor columns, and tensors as predictions."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.protocols.kserve_v1.rows import Column, nested_rows, prediction_rows, read_rows
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.tensor import BytesTensor, Datatype, Tensor, TensorSpec
from tests.support.rejection import rejects

NUMBERS = [datatype for datatype in Datatype if datatype not in (Datatype.BYTES, Datatype.BF16)]


def spec(datatype: Datatype = Datatype.FP32, name: str = "x", *shape: int) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape or (-1,))


def raw_instances(*instances: object) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(instance).encode()) for instance in instances]


def read(specs: list[TensorSpec], *instances: object) -> list[Column]:
    return list(read_rows(raw_instances(*instances), "instances", specs))


def predictions(*tensors: Tensor) -> Sequence[Any]:
    return prediction_rows(tensors, nested_rows, ErrorKind.UNSUPPORTED, "Use the V2 protocol")


def numbers(column: Column) -> NDArray[Any]:
    assert isinstance(column.tensor, Tensor)
    return column.tensor.data


def texts(column: Column) -> list[str]:
    assert isinstance(column.tensor, BytesTensor)
    return [element.text() for element in column.tensor.elements]


def error_for(specs: list[TensorSpec], *instances: object) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        read(specs, *instances)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    return caught.value


@pytest.mark.parametrize("datatype", NUMBERS)
@pytest.mark.parametrize("row_shape", [(), (2, 2), (0,)])
def test_rows_keep_their_shape(datatype: Datatype, row_shape: tuple[int, ...]) -> None:
    array = (np.arange(2 * int(np.prod(row_shape))) % 2).reshape(2, *row_shape).astype(datatype.dtype)
    for instances in (array.tolist(), [{"x": row} for row in array.tolist()]):
        (column,) = read([spec(datatype)], *instances)
        assert column.tensor.name == "x"
        assert column.tensor.shape == array.shape
        assert numbers(column).dtype == datatype.dtype
        assert numbers(column).tolist() == array.tolist()


@pytest.mark.parametrize("value", [3.4e38, -3.4e38])
def test_fp32_number_out_of_bf16_range_is_rejected(value: float) -> None:
    error = error_for([spec(Datatype.BF16)], 1.0, value)
    assert (error.path, error.message) == ("instances", "Expected BF16 numbers, got one out of range")
    (column,) = read([spec(Datatype.FP32)], value)
    assert np.isfinite(numbers(column)).all()
    (column,) = read([spec(Datatype.BF16)], 1.0, -2)
    assert numbers(column).tolist() == [0x3F80, 0xC000]


# Several inputs, and names

PAIR = [spec(Datatype.INT64, "numbers"), spec(Datatype.BYTES, "words")]


BAD_PAIRS: list[tuple[list[object], str, str]] = [
    ([1], "instances[0]", "Expected `object`, got `int`"),
    ([{"numbers": 1, "words": "a"}, [2]], "instances[1]", "Expected `object`, got `array`"),
    ([{"numbers": 1}], "instances[0]", "'words', got none"),
    ([{"numbers": 1, "words": "a", "more": 1}], "instances[0]", "got 'more'"),
    ([{"numbers": 1, "words": "a"}, {"numbers": "2", "words": "a"}], "instances[1].numbers", "got str"),
    ([{"numbers": 1, "words": "a"}, {"numbers": 2, "words": 3}], "instances[1].words", "got 3"),
    ([{"numbers": [1, 2], "words": "a"}, {"numbers": [1, None], "words": "a"}], "instances[1].numbers[1]", "null"),
    ([{"numbers": 2**63, "words": "a"}], "instances", "out of range"),
]


@pytest.mark.parametrize(("instances", "path", "message"), BAD_PAIRS)
def test_bad_value_of_several_inputs_is_rejected_with_its_path(
    instances: list[object], path: str, message: str
) -> None:
    error = error_for(PAIR, *instances)
    assert (error.path, message in error.message) == (path, True), error


# Texts


def test_texts_can_be_plain_or_base64() -> None:
    encoded = {"b64": base64.b64encode("Bår".encode()).decode()}
    for instances, expected in (([encoded], ["Bår"]), (["a", encoded], ["a", "Bår"]), ([{"x": encoded}], ["Bår"])):
        (column,) = read([spec(Datatype.BYTES)], *instances)
        assert texts(column) == expected
    (column,) = read([spec(Datatype.BYTES)], ["a", "b"], ["c", {"b64": ""}])
    assert (column.tensor.shape, texts(column)) == ((2, 2), ["a", "b", "c", ""])


@pytest.mark.parametrize(
    ("instances", "path"),
    [
        (["a", 1], "instances[1]"),
        ([["a", "b"], ["c", None]], "instances[1][1]"),
        ([["a"], "b"], "instances[0]"),
        ([{"b64": "!"}], "instances[0]"),
        ([{"b64": 1}], "instances[0]"),
        (["a", {"b64": "YQ==", "c": 1}], "instances[1]"),
    ],
)
def test_invalid_text_is_rejected_with_its_path(instances: list[object], path: str) -> None:
    assert error_for([spec(Datatype.BYTES)], *instances).path == path


# Paths of task errors in the body


@pytest.mark.parametrize(
    ("datatype", "instances", "field", "path"),
    [
        (Datatype.FP32, [[1, 2], [3, 4]], "shape", "inputs"),
        (Datatype.FP32, [[1, 2], [3, 4]], "data[1][0]", "inputs[1][0]"),
        (Datatype.FP32, [{"x": [1, 2]}], "data[0][1]", "inputs[0].x[1]"),
        (Datatype.FP32, [{"x": [1, 2]}], "datatype", "inputs"),
        (Datatype.BYTES, ["a", "b"], "data[1]", "inputs[1]"),
        (Datatype.BYTES, [["a", "b"], ["c", "d"]], "data[3]", "inputs[1][1]"),
        (Datatype.BYTES, [{"x": ["a", "b"]}, {"x": ["c", "d"]}], "data[2]", "inputs[1].x[0]"),
    ],
)
def test_field_returns_the_path_of_a_value(datatype: Datatype, instances: list[object], field: str, path: str) -> None:
    (column,) = read_rows(raw_instances(*instances), "inputs", [spec(datatype)])
    assert column.body_path(field) == path


# Predictions


def tensor(data: Any, datatype: Datatype = Datatype.FP32, name: str = "y") -> Tensor:
    return Tensor(name=name, datatype=datatype, data=np.array(data, datatype.dtype))


def test_nonfinite_predictions_are_null() -> None:
    rows = predictions(tensor([float("nan"), float("inf"), 1]))
    assert msgspec.json.encode(rows) == b"[null,null,1.0]"


def test_bytes_that_are_not_utf8_are_written_as_base64() -> None:
    rows = predictions(tensor([[b"a", b"\xff\x00"]], Datatype.BYTES))
    assert rows == [["a", {"b64": "/wA="}]]


def test_bf16_predictions_are_written_as_numbers() -> None:
    assert predictions(tensor([0x3F80, 0x7F80], Datatype.BF16)) == [1.0, float("inf")]


@pytest.mark.parametrize("tensors", [[tensor(1)], [tensor([1, 2]), tensor([1], name="z")], [tensor([1]), tensor(1)]])
def test_outputs_without_a_common_first_dimension_are_rejected(tensors: list[Tensor]) -> None:
    with rejects(r"'y'.*V2", kind=ErrorKind.UNSUPPORTED):
        predictions(*tensors)


def test_empty_rows_give_empty_predictions() -> None:
    assert predictions(tensor(np.zeros((2, 0)))) == [[], []]
