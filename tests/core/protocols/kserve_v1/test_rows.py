"""Test instances of tensor models as tensor columns, and tensors as predictions."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.protocols.kserve_v1.rows import nested_rows, prediction_rows, read_rows
from tasks.inference.error import ErrorKind
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tests.support.rejection import rejects


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
    raw_instances = [msgspec.Raw(json.dumps(instance).encode()) for instance in instances]
    (column,) = read_rows(raw_instances, "inputs", [TensorSpec(name="x", datatype=datatype, shape=(-1,))])
    assert column.body_path(field) == path


def predictions(*tensors: Tensor) -> Sequence[Any]:
    return prediction_rows(tensors, nested_rows, ErrorKind.UNSUPPORTED, "Use the V2 protocol")


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
