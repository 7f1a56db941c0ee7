"""Test classify and regress for models of many shapes, and bodies that try to break the server."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.engine.models.servable import Servable
from app.plugins.tensorflow_serving.signatures import signatures
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tests.plugins.tensorflow_serving.test_predict import Client, error_message, listener_client
from tests.support.models.fake_models import stand_in_metadata
from tests.support.servers.apps import load_test_model, model_source
from tests.support.servers.grpc_server import build_engine_from_sources

Compute = Callable[..., NDArray[Any]]

REGRESS = "tensorflow/serving/regress"
CLASSIFY = "tensorflow/serving/classify"


def spec(name: str, *shape: int, datatype: Datatype = Datatype.FP32) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape)


def servable(inputs: Sequence[TensorSpec], output: TensorSpec, compute: Compute, *labels: str) -> Servable:
    def model(batch: Sequence[TensorsInput]) -> Sequence[Tensors]:
        return [
            Tensors([Tensor(name=output.name, datatype=output.datatype, data=compute(**item.tensors))])
            for item in batch
        ]

    return Servable(TensorInference(inputs, [output]), model, stand_in_metadata(TaskType.TENSOR, labels), {})


def post_examples(fake_model: Servable, verb: str, *examples: dict[str, Any], **body: Any) -> tuple[int, Any]:
    """Send examples, and return the status and the results or the error."""
    engine = build_engine_from_sources([model_source("made")], lambda _: fake_model)
    with listener_client(engine) as client:
        answer = client.post(f"/v1/models/made:{verb}", content=json.dumps({"examples": examples, **body}))
    (result,) = answer.json().values()
    return answer.status_code, result


def zeros(*shape: int) -> Compute:
    def compute(**_: NDArray[Any]) -> NDArray[Any]:
        return np.zeros(shape, np.float32)

    return compute


@pytest.mark.parametrize(
    ("inputs", "output", "expected"),
    [
        ([spec("x", -1)], spec("y", -1), {REGRESS, CLASSIFY}),
        ([spec("x", -1, 3)], spec("y", -1, 5), {CLASSIFY}),
        ([spec("x", -1, -1)], spec("y", -1, -1), {CLASSIFY}),
        ([spec("a", -1), spec("b", -1, 2, datatype=Datatype.INT64)], spec("y", -1), {REGRESS, CLASSIFY}),
        # The model has no row for each example, or no FP32.
        ([spec("x", 1, 3)], spec("y", -1), set[str]()),
        ([spec("x", -1, -1, -1)], spec("y", -1), set[str]()),
        ([spec("x", -1)], spec("y"), set[str]()),
        ([spec("x", -1)], spec("y", -1, 2, 2), set[str]()),
        ([spec("x", -1)], spec("y", -1, datatype=Datatype.FP64), set[str]()),
    ],
)
def test_model_with_fp32_rows_per_example_has_example_signatures(
    inputs: Sequence[TensorSpec], output: TensorSpec, expected: set[str]
) -> None:
    assert set(signatures(servable(inputs, output, zeros()))) == {"serving_default", *expected}


def test_features_become_rows_of_inputs_with_the_same_name() -> None:
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
        lengths = np.array([len(text) for text in word.ravel()])
        return (weights.sum(axis=(1, 2)) + 10 * count + 100 * on + 1000 * lengths).astype(np.float32)

    fake_model = servable(inputs, spec("y", -1), compute)
    first = {"weights": [1, 1, 1, 1], "count": 2, "on": True, "word": "abc", "other": []}
    second = {"weights": [0.5, 0.25, 0.125, 0.125], "word": {"b64": "YWI="}}
    status, results = post_examples(fake_model, "regress", first, second, context={"count": [3], "on": False})
    assert (status, results) == (200, [3124.0, 2031.0])


def total(x: NDArray[Any]) -> NDArray[Any]:
    return x.reshape(len(x), -1).sum(axis=1)


def column(x: NDArray[Any]) -> NDArray[Any]:
    return x.mean(axis=1, keepdims=True)


def identity(x: NDArray[Any]) -> NDArray[Any]:
    return x


FREE = servable([spec("x", -1, -1, 2)], spec("y", -1), total)
COLUMN = servable([spec("x", -1, 2)], spec("y", -1, 1), column)
LABELED = servable([spec("x", -1, 2)], spec("y", -1, 2), identity, "cat", "dog")
FEW_LABELS = servable([spec("x", -1, 2)], spec("y", -1, 2), identity, "cat")


@pytest.mark.parametrize(
    ("fake_model", "verb", "values", "expected"),
    [
        (FREE, "regress", [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 1.0]], (200, [10.0, 1.0])),
        (FREE, "regress", [[1.0, 2.0], [1.0] * 4], (400, "examples[1].x: Expected 2 values, got 4")),
        (FREE, "regress", [[1.0, 2.0, 3.0]], (400, "examples[0].x: Expected a multiple of 2 values, got 3")),
        (COLUMN, "regress", [[1.0, 2.0]], (200, [1.5])),
        (COLUMN, "classify", [[1.0, 2.0]], (200, [[["", 1.5]]])),
        (LABELED, "classify", [[0.25, 0.75]], (200, [[["cat", 0.25], ["dog", 0.75]]])),
        (FEW_LABELS, "classify", [[0.25, 0.75]], (200, [[["", 0.25], ["", 0.75]]])),
    ],
)
def test_rows_of_outputs_become_results(
    fake_model: Servable, verb: str, values: list[list[float]], expected: tuple[int, Any]
) -> None:
    assert post_examples(fake_model, verb, *({"x": value} for value in values)) == expected


@pytest.mark.parametrize(("sizes", "verb"), [((3,), "regress"), ((1, 2), "regress"), ((1, 1, 1), "classify")])
def test_output_without_one_row_per_example_is_rejected(sizes: tuple[int, ...], verb: str) -> None:
    fake_model = servable([spec("x", -1)], spec("y", -1), zeros(*sizes))
    message = f"y: Expected a row of scores for each of the 1 examples, got the shape {list(sizes)}"
    assert post_examples(fake_model, verb, {"x": 1.0}) == (400, message)


@pytest.mark.parametrize(
    ("datatype", "value", "status", "message"),
    [
        (Datatype.INT32, 2**31, 400, "x: Expected INT32 numbers, got one out of range"),
        (Datatype.INT64, 1.0, 400, "examples[0].x: Expected a feature of type int64, got float"),
        (Datatype.BYTES, 1, 400, "examples[0].x: Expected a feature of type bytes, got int64"),
        (Datatype.FP16, 1.0, 501, "x: Features have no form for FP16"),
        (Datatype.FP32, [], 400, "examples[0].x: Expected a feature of type float, got none"),
    ],
)
def test_feature_of_wrong_type_is_rejected(datatype: Datatype, value: object, status: int, message: str) -> None:
    fake_model = servable([spec("x", -1, datatype=datatype)], spec("y", -1), zeros(1))
    assert post_examples(fake_model, "regress", {"x": value}) == (status, message)


MODELS = ("classifier", "detector", "teller", "continuer", "half_plus_two", "echo-pair", "echo-int64", "greeter")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    engine = build_engine_from_sources([model_source(name) for name in MODELS], load_test_model)
    with listener_client(engine) as client:
        yield client


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("predict", {"signature_name": "x" * 100_000, "instances": [1]}),
        ("predict", {"instances": [{"x" * 1000: 1}]}),
        ("predict", {"instances": ["x" * 100_000]}),
        ("classify", {"signature_name": "x" * 100_000, "examples": [{"x": 1}]}),
        ("regress", {"examples": [{"x" * 1000: None}]}),
        ("regress", {"examples": [{"x" * 1000: {"a": 1}}]}),
    ],
)
def test_errors_quote_long_values_only_in_part(client: Client, verb: str, body: object) -> None:
    assert len(error_message(client, f"/v1/models/half_plus_two:{verb}", body, 400)) < 3100


ATTACKS = {
    "deep and legal": b'{"instances": ' + b"[" * 400 + b"]" * 400 + b"}",
    "huge integer": b'{"instances": [' + b"9" * 10_000 + b"]}",
    "mixed": b'{"instances": [1, "a", null, true, {"b64": "YQ=="}, [], {}]}',
    "inputs empty": b'{"inputs": {}}',
    "examples empty feature": b'{"examples": [{"x": [], "image": [], "text": [], "numbers": []}]}',
    "examples huge integer": b'{"examples": [{"x": ' + b"9" * 400 + b"}]}",
    "image huge": b'{"instances": [{"b64": "iVBORw0KGgoAAAANSUhEUgB//////38IAgAAAA=="}]}',
}


@pytest.mark.parametrize("body", ATTACKS.values(), ids=ATTACKS)
def test_hostile_body_returns_a_client_error(client: Client, body: bytes) -> None:
    for model in MODELS:
        for verb in ("predict", "classify", "regress"):
            answer = client.post(f"/v1/models/{model}:{verb}", content=body)
            assert 400 <= answer.status_code < 500, (model, verb, answer.text)
            assert answer.json()["error"]
