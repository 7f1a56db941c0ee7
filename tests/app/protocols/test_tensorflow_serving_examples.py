"""Which models classify and regress, how features become tensors, and answers pairs and numbers."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from numpy.typing import NDArray

from app.engine.description import ModelDescription
from app.engine.servable import BoundServable, Servable
from app.protocols.tensorflow_serving.routes import TensorFlowServing
from app.protocols.tensorflow_serving.signatures import signatures
from app.server.asgi import create_listener_app
from app.settings.model import ModelSource
from tasks.exchange.tensor import Datatype, Tensor, TensorSpec
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tests.support.grpc_server import over
from tests.support.served import MAX_REQUEST_BYTES, source

Compute = Callable[..., NDArray[Any]]

REGRESS = "tensorflow/serving/regress"
CLASSIFY = "tensorflow/serving/classify"


def spec(name: str, *shape: int, datatype: Datatype = Datatype.FP32) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape)


def servable(inputs: Sequence[TensorSpec], output: TensorSpec, compute: Compute, *labels: str) -> Servable:
    def model(given: Sequence[TensorsInput]) -> Sequence[Tensors]:
        found = [compute(**each.tensors) for each in given]
        return [Tensors([Tensor(name=output.name, datatype=output.datatype, data=each)]) for each in found]

    description = ModelDescription(
        task_type=TaskType.TENSOR, platform="made", layout="none", labels=labels, inputs=(), outputs=(), facts=()
    )
    return BoundServable(TensorInference(inputs, [output]), model, description, {})


def asked(made: Servable, verb: str, *examples: dict[str, Any], **body: Any) -> tuple[int, Any]:
    """The status, and the results or the error."""

    def load(_: ModelSource) -> Servable:
        return made

    app: Litestar = create_listener_app(over([source("made")], load), TensorFlowServing(), MAX_REQUEST_BYTES)
    with TestClient(app) as client:
        answer = client.post(f"/v1/models/made:{verb}", content=json.dumps({"examples": examples, **body}))
    (found,) = answer.json().values()
    return answer.status_code, found


def zeros(*shape: int) -> Compute:
    def compute(**_: NDArray[Any]) -> NDArray[Any]:
        return np.zeros(shape, np.float32)

    return compute


@pytest.mark.parametrize(
    ("inputs", "output", "found"),
    [
        ([spec("x", -1)], spec("y", -1), {REGRESS, CLASSIFY}),
        ([spec("x", -1, 3)], spec("y", -1, 1), {REGRESS, CLASSIFY}),
        ([spec("x", -1, 3)], spec("y", -1, 5), {CLASSIFY}),
        ([spec("x", -1, -1)], spec("y", -1, -1), {CLASSIFY}),
        ([spec("a", -1), spec("b", -1, 2, datatype=Datatype.INT64)], spec("y", -1), {REGRESS, CLASSIFY}),
        # No row for each example, or no FP32.
        ([spec("x", 1, 3)], spec("y", -1), set[str]()),
        ([spec("x")], spec("y", -1), set[str]()),
        ([spec("x", -1, -1, -1)], spec("y", -1), set[str]()),
        ([spec("x", -1)], spec("y", 1), set[str]()),
        ([spec("x", -1)], spec("y"), set[str]()),
        ([spec("x", -1)], spec("y", -1, 2, 2), set[str]()),
        ([spec("x", -1)], spec("y", -1, datatype=Datatype.FP64), set[str]()),
        ([spec("x", -1)], spec("y", -1, datatype=Datatype.BYTES), set[str]()),
    ],
)
def test_a_model_that_gives_numbers_for_each_example_has_signatures_for_them(
    inputs: Sequence[TensorSpec], output: TensorSpec, found: set[str]
) -> None:
    assert set(signatures(servable(inputs, output, zeros()))) == {"serving_default", *found}


def test_features_are_rows_of_the_inputs_called_like_them() -> None:
    inputs = [
        spec("weights", -1, 2, 2),
        spec("count", -1, datatype=Datatype.INT32),
        spec("on", -1, datatype=Datatype.BOOL),
        spec("word", -1, 1, datatype=Datatype.BYTES),
    ]

    def compute(
        weights: NDArray[Any], count: NDArray[Any], on: NDArray[Any], word: NDArray[Any]
    ) -> NDArray[np.float32]:
        assert (weights.shape[1:], weights.dtype, count.dtype, on.dtype) == ((2, 2), np.float32, np.int32, np.bool_)
        lengths = np.array([len(each) for each in word.ravel()])
        return (weights.sum(axis=(1, 2)) + 10 * count + 100 * on + 1000 * lengths).astype(np.float32)

    made = servable(inputs, spec("y", -1), compute)
    first = {"weights": [1, 1, 1, 1], "count": 2, "on": True, "word": "abc", "other": []}
    second = {"weights": [0.5, 0.25, 0.125, 0.125], "word": {"b64": "YWI="}}
    status, found = asked(made, "regress", first, second, context={"count": [3], "on": False})
    assert (status, found) == (200, [3124.0, 2031.0])


def test_one_size_may_be_any_if_all_examples_agree_on_it() -> None:
    def total(x: NDArray[Any]) -> NDArray[Any]:
        return x.sum(axis=(1, 2))

    made = servable([spec("x", -1, -1, 2)], spec("y", -1), total)
    assert asked(made, "regress", {"x": [1.0, 2.0, 3.0, 4.0]}, {"x": [0.0, 0.0, 0.0, 1.0]}) == (200, [10.0, 1.0])
    status, error = asked(made, "regress", {"x": [1.0, 2.0]}, {"x": [1.0, 2.0, 3.0, 4.0]})
    assert (status, error) == (400, "examples[1].x: Expected 2 values of feature x, got 4")
    status, error = asked(made, "regress", {"x": [1.0, 2.0, 3.0]})
    assert (status, error) == (400, "examples[0].x: Expected a multiple of 2 values of feature x, got 3")


def test_a_column_of_one_is_a_number_for_each_example() -> None:
    def mean(x: NDArray[Any]) -> NDArray[Any]:
        return x.mean(axis=1, keepdims=True)

    made = servable([spec("x", -1, 2)], spec("y", -1, 1), mean)
    assert asked(made, "regress", {"x": [1.0, 2.0]}) == (200, [1.5])
    assert asked(made, "classify", {"x": [1.0, 2.0]}) == (200, [[["", 1.5]]])


def test_labels_are_those_of_the_settings_if_there_are_as_many_as_scores() -> None:
    def same(x: NDArray[Any]) -> NDArray[Any]:
        return x

    example = {"x": [0.25, 0.75]}
    made = servable([spec("x", -1, 2)], spec("y", -1, 2), same, "cat", "dog")
    assert asked(made, "classify", example) == (200, [[["cat", 0.25], ["dog", 0.75]]])
    made = servable([spec("x", -1, 2)], spec("y", -1, 2), same, "cat")
    assert asked(made, "classify", example) == (200, [[["", 0.25], ["", 0.75]]])


@pytest.mark.parametrize(
    ("sizes", "verb", "message"),
    [
        ((3,), "regress", "Input batch size did not match output batch size: 1 vs. 3"),
        ((1, 2), "regress", "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [1,2]"),
        ((3, 1), "classify", "y: Expected scores output batch size of 1. Got: 3"),
        ((1, 1, 1), "classify", "y: Expected Tensor shape: [batch_size num_classes] but got [1,1,1]"),
    ],
)
def test_a_model_that_gave_no_row_for_each_example_is_told_of(sizes: tuple[int, ...], verb: str, message: str) -> None:
    made = servable([spec("x", -1)], spec("y", -1), zeros(*sizes))
    assert asked(made, verb, {"x": 1.0}) == (400, message)


@pytest.mark.parametrize(
    ("datatype", "value", "status", "message"),
    [
        (Datatype.INT32, 2**31, 400, "x: Expected values of type int32, got one out of range"),
        (Datatype.UINT8, -1, 400, "x: Expected values of type uint8, got one out of range"),
        (Datatype.INT64, 1.0, 400, "examples[0].x: Data types don't match. Data type: float but expected type: int64"),
        (Datatype.INT64, "1", 400, "examples[0].x: Data types don't match. Data type: bytes but expected type: int64"),
        (Datatype.BYTES, 1, 400, "examples[0].x: Data types don't match. Data type: int64 but expected type: bytes"),
        (Datatype.FP16, 1.0, 501, "Conversion of a feature to type: half"),
        (
            Datatype.FP32,
            [],
            400,
            "examples[0].x: Feature: x (data type: float) is required but could not be found.",
        ),
    ],
)
def test_a_feature_of_another_kind_is_told_of(datatype: Datatype, value: object, status: int, message: str) -> None:
    made = servable([spec("x", -1, datatype=datatype)], spec("y", -1), zeros(1))
    assert asked(made, "regress", {"x": value}) == (status, message)
