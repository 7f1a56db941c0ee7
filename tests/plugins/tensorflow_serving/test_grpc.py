"""Test TensorFlow Serving over gRPC: signatures, examples, states, errors and their codes."""

from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import pytest

from app.plugins.tensorflow_serving.proto import message_class
from tests.support.data.images import encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder
from tests.support.servers.grpc_server import GrpcTestClient, build_engine, run_grpc_server

PREDICTION = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
REGRESS = "tensorflow/serving/regress"
CLASSIFY = "tensorflow/serving/classify"
FLOAT, INT64, STRING = "DT_FLOAT", "DT_INT64", "DT_STRING"
HALVES = {"x": {"dtype": FLOAT, "tensor_shape": {"dim": [{"size": 2}]}, "float_val": [1, 5]}}
IMAGE = {"dtype": STRING, "tensor_shape": {"dim": [{"size": 1}]}, "string_val": [encode_image(rectangle())]}
MODELS = ("half_plus_two", "half_plus_three", "echo-pair", "detector", "classifier", "teller", "failing")

NAMES = {"Classify": "Classification", "Regress": "Regression", "HandleReloadConfigRequest": "ReloadConfig"}


def call(peer: GrpcTestClient, method: str, **fields: Any) -> Any:
    service = MODEL_SERVICE if "Status" in method or "Reload" in method else PREDICTION
    name = f"tensorflow.serving.{NAMES.get(method, method)}"
    data = peer.call_bytes(f"/{service}/{method}", message_class(f"{name}Request")(**fields).SerializeToString())
    return message_class(f"{name}Response").FromString(data)


def call_error(peer: GrpcTestClient, method: str, **fields: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(peer, method, **fields)
    error: Any = caught.value
    return error.code().name, error.details()


def spec(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


def examples(*features: Mapping[str, Mapping[str, Any]], context: Mapping[str, Any] | None = None) -> dict[str, Any]:
    messages = [{"features": {"feature": feature}} for feature in features]
    if context is None:
        return {"example_list": {"examples": messages}}
    return {"example_list_with_context": {"examples": messages, "context": {"features": {"feature": context}}}}


def half(inputs: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"model_spec": spec("half_plus_two", **fields)} | ({} if inputs is None else {"inputs": inputs})


def floats(*values: float) -> dict[str, Any]:
    return {"float_list": {"value": values}}


@pytest.fixture(scope="module")
def recorder() -> EventRecorder:
    return EventRecorder()


@pytest.fixture(scope="module")
def peer(recorder: EventRecorder) -> Iterator[GrpcTestClient]:
    with run_grpc_server(build_engine(MODELS, observers=[recorder])) as peer:
        yield peer


@pytest.mark.parametrize("version", [{}, {"version": {"value": 0}}])
def test_predict_returns_values_with_the_resolved_version(peer: GrpcTestClient, version: dict[str, Any]) -> None:
    response = call(peer, "Predict", model_spec=spec("half_plus_two", **version), inputs=HALVES)
    assert list(response.outputs["y"].float_val) == [2.5, 4.5]
    assert [dimension.size for dimension in response.outputs["y"].tensor_shape.dim] == [2]
    resolved = response.model_spec
    assert (resolved.name, resolved.signature_name, resolved.version.value) == ("half_plus_two", "serving_default", 1)


WORD = {"bytes_list": {"value": [b"1"]}}
PIXELS = {"dtype": "DT_UINT8", "tensor_shape": {"dim": [{"size": size} for size in (1, 8, 8, 3)]}}
QUESTION = {**IMAGE, "string_val": [b"What is it?"]}


@pytest.mark.parametrize(
    ("model", "inputs", "count"),
    [
        ("detector", {"image_bytes": IMAGE}, "num_detections"),
        ("detector", {"image": {**PIXELS, "tensor_content": bytes(192)}}, "num_detections"),
        ("teller", {"image": IMAGE, "prompt": QUESTION}, "num_prompts"),
    ],
)
def test_images_and_prompts_reach_tasks(peer: GrpcTestClient, model: str, inputs: dict[str, Any], count: str) -> None:
    outputs = call(peer, "Predict", model_spec=spec(model), inputs=inputs).outputs
    assert count in outputs
    assert "prompts" not in outputs or list(outputs["prompts"].string_val) == QUESTION["string_val"]


def test_output_filter_selects_outputs(peer: GrpcTestClient) -> None:
    one_number = {"dtype": INT64, "tensor_shape": {"dim": [{"size": 1}]}, "int64_val": [7]}
    one_word = {"dtype": STRING, "tensor_shape": {"dim": [{"size": 1}]}, "string_val": [b"a"]}
    inputs = {"numbers": one_number, "words": one_word}
    request = {"model_spec": spec("echo-pair"), "inputs": inputs}
    assert set(call(peer, "Predict", **request).outputs) == {"numbers", "words"}
    assert set(call(peer, "Predict", **request, output_filter=["words"]).outputs) == {"words"}
    for names, error in ((["z"], "one of 'numbers', 'words', got 'z'"), (["words"] * 2, "each output once, got ")):
        code, details = call_error(peer, "Predict", **request, output_filter=names)
        assert (code, details.startswith(f"output_filter: Expected {error}")) == ("INVALID_ARGUMENT", True), details


def test_regress_and_classify_return_a_result_for_each_example(peer: GrpcTestClient) -> None:
    # A feature of the context applies to examples without it.
    inputs = examples({}, {"x": floats(5)}, context={"x": floats(1)})
    fields = {"model_spec": spec("half_plus_two"), "input": inputs}
    regression = call(peer, "Regress", **fields)
    assert [item.value for item in regression.result.regressions] == [2.5, 4.5]
    assert regression.model_spec.signature_name == REGRESS
    classification = call(peer, "Classify", **fields)
    classes = [[(item.label, item.score) for item in row.classes] for row in classification.result.classifications]
    assert classes == [[("", 2.5)], [("", 4.5)]]


def task(method: str, name: str = "half_plus_two") -> dict[str, Any]:
    return {"model_spec": spec(name), "method_name": method}


def tasks(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"tasks": messages, "input": examples({"x": floats(1)})}


def test_multi_inference_runs_the_model_once_for_all_tasks(peer: GrpcTestClient, recorder: EventRecorder) -> None:
    count = len(recorder.events)
    first, second = call(peer, "MultiInference", **tasks(task(CLASSIFY), task(REGRESS))).results
    assert first.classification_result.classifications[0].classes[0].score == 2.5
    assert second.regression_result.regressions[0].value == 2.5
    assert (first.model_spec.signature_name, second.model_spec.signature_name) == (CLASSIFY, REGRESS)
    assert len(recorder.events) == count + 1


def test_metadata_has_the_signatures_of_the_model(peer: GrpcTestClient) -> None:
    response = call(peer, "GetModelMetadata", model_spec=spec("half_plus_two"), metadata_field=["signature_def"])
    assert response.model_spec.version.value == 1
    packed = response.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    definitions = message_class("tensorflow.serving.SignatureDefMap").FromString(packed.value).signature_def
    assert set(definitions) == {"serving_default", REGRESS, CLASSIFY}
    tensor_info = definitions["serving_default"].inputs["x"]
    assert (tensor_info.name, tensor_info.dtype, [dim.size for dim in tensor_info.tensor_shape.dim]) == ("x:0", 1, [-1])


def test_status_lists_the_versions_of_a_model(peer: GrpcTestClient) -> None:
    (status,) = call(peer, "GetModelStatus", model_spec=spec("half_plus_two")).model_version_status
    assert (status.version, status.state, status.status.error_code) == (1, 30, 0)


INVALID, HALF = "INVALID_ARGUMENT", {"model_spec": spec("half_plus_two")}
NO_EXAMPLE = "input: Expected at least one example, got none"
OTHER_MODELS = "tasks: Expected tasks that all name one model"
REJECTED: list[tuple[str, dict[str, Any], str, str]] = [
    ("Predict", {}, INVALID, "model_spec.name: Expected the name of a model, got none"),
    ("Predict", {"model_spec": spec("m")}, "NOT_FOUND", "Servable not found for request: Latest(m)"),
    ("Predict", half(version_label="canary"), INVALID, "Unrecognized servable version label: canary"),
    ("Predict", half(signature_name="s"), "FAILED_PRECONDITION",
     f"signature_name: Expected one of 'serving_default', '{REGRESS}', '{CLASSIFY}', got 's'"),
    ("Predict", half({**HALVES, "z": HALVES["x"]}), INVALID, "inputs: Expected one of 'x', got 'z'"),
    ("Predict", half({"x": {**HALVES["x"], "dtype": "DT_INT32"}}), INVALID, "x: Expected FP32, got INT32"),
    ("Predict", {"model_spec": spec("failing"), "inputs": {"image": IMAGE}}, "INTERNAL",
     "The model failed: a model that fails on 1"),
    ("Regress", {**HALF, "input": {}}, INVALID, NO_EXAMPLE),
    ("Regress", {**HALF, "input": examples({"x": {}})}, INVALID,
     "examples[0].x: Expected a feature of type float, got none"),
    ("Regress", {**HALF, "input": examples({"x": WORD})}, INVALID,
     "examples[0].x: Expected a feature of type float, got bytes"),
    ("MultiInference", tasks(), INVALID, f"{OTHER_MODELS}, got []"),
    ("MultiInference", tasks(task(REGRESS), task(REGRESS, "m")), INVALID,
     f"{OTHER_MODELS}, got ['half_plus_two', 'm']"),
    ("MultiInference", tasks(*[task(REGRESS)] * 2), INVALID,
     f"tasks[1]: Expected each signature once, got {REGRESS} again"),
    ("MultiInference", tasks(task("x")), "UNIMPLEMENTED",
     f"tasks[0].method_name: Expected one of {CLASSIFY}, {REGRESS}, got 'x'"),
    ("GetModelMetadata", HALF, INVALID, "metadata_field: Expected 'signature_def', got none"),
    ("GetModelMetadata", {**HALF, "metadata_field": ["x"]}, INVALID,
     "metadata_field: Expected 'signature_def', got 'x'"),
    ("GetModelStatus", half(version={"value": 2}), "NOT_FOUND", "Could not find version 2 of model half_plus_two"),
    ("HandleReloadConfigRequest", {}, "UNIMPLEMENTED",
     "Models are configured where the server starts; the repository API of KServe V2 reloads them"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "fields", "code", "details"), REJECTED)
def test_rejected_call_has_the_code_of_the_real_server(
    peer: GrpcTestClient, method: str, fields: dict[str, Any], code: str, details: str
) -> None:
    assert call_error(peer, method, **fields) == (code, details)


def test_loading_model_is_not_found_and_has_the_state_loading() -> None:
    engine = build_engine(("half_plus_two",), loaded=False)
    with run_grpc_server(engine) as peer:
        error = call_error(peer, "Predict", model_spec=spec("half_plus_two"), inputs=HALVES)
        assert error == ("NOT_FOUND", "Servable not found for request: Latest(half_plus_two)")
        (status,) = call(peer, "GetModelStatus", model_spec=spec("half_plus_two")).model_version_status
        assert status.state == 20
