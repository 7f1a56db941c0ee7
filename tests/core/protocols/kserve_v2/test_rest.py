"""Test the Open Inference Protocol over REST: server, models and outputs, besides its golden cases."""

from typing import Any

import pytest
from litestar.testing import TestClient

from app import __version__
from tasks.inference.tensor import Datatype, TensorSpec
from tests.core.protocols.kserve_v2.test_grpc_codec import VALUES
from tests.support.data.chariot import IMAGE, Client, image_input
from tests.support.servers.apps import ALL_MODELS, ECHO_MODELS, app_with_models


def infer(client: Client, model: str, body: dict[str, Any], version: str = "") -> dict[str, Any]:
    """Send a V2 request and return the response."""
    response = client.post(f"/v2/models/{model}{version}/infer", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def outputs_by_name(answer: dict[str, Any]) -> dict[str, tuple[str, list[int], list[Any]]]:
    """Return datatype, shape and data of each output by name."""
    return {output["name"]: (output["datatype"], output["shape"], output["data"]) for output in answer["outputs"]}


def test_server_metadata_has_name_version_and_extensions(client: Client) -> None:
    for path in ("/v2", "/v2/"):
        metadata = client.get(path).json()
        assert metadata["name"] == "charioteer"
        assert metadata["version"] == __version__
        assert {"binary_tensor_data", "classification", "parameters"} <= {*metadata["extensions"]}


def test_server_is_live_and_ready_and_lists_models(client: Client) -> None:
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    for path in ("/v2/models/detector/ready", "/v2/models/detector/versions/1/ready"):
        assert client.get(path).json() == {"name": "detector", "ready": True}
    assert client.get("/v2/models").json() == {"models": sorted(ALL_MODELS)}


@pytest.mark.parametrize("model", ["classifier", "detector", "half_plus_two", "teller"])
def test_metadata_matches_real_inputs_and_outputs(client: Client, model: str) -> None:
    metadata = client.get(f"/v2/models/{model}").json()
    (input_spec,) = metadata["inputs"]
    data, shape = ([IMAGE], [1]) if input_spec["datatype"] == "BYTES" else ([1.0], [1])
    tensor = {"name": input_spec["name"], "datatype": input_spec["datatype"], "shape": shape, "data": data}
    requested_outputs = [{"name": output["name"]} for output in metadata["outputs"]]
    answer = infer(client, model, {"inputs": [tensor], "outputs": requested_outputs})
    assert [output["name"] for output in answer["outputs"]] == [output["name"] for output in metadata["outputs"]]
    for actual, declared in zip(answer["outputs"], metadata["outputs"], strict=True):
        assert actual["datatype"] == declared["datatype"]
        assert len(actual["shape"]) == len(declared["shape"])
        assert all(
            size in (-1, actual_size) for size, actual_size in zip(declared["shape"], actual["shape"], strict=True)
        )


@pytest.mark.parametrize("method", ["GET /v2/models/{}", "GET /v2/models/{}/ready", "POST /v2/models/{}/infer"])
@pytest.mark.parametrize("target", ["missing", "detector/versions/2", "detector/versions/x", "%20", "..%2fetc"])
def test_unknown_model_or_version_returns_404(client: Client, method: str, target: str) -> None:
    verb, path = method.split(" ")
    response = client.request(verb, path.format(target), json={"inputs": [image_input()]})
    assert response.status_code == 404
    assert list(response.json()) == ["error"]


def test_id_is_returned_only_if_the_request_has_one(client: Client) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    answer = infer(client, "half_plus_two", {"inputs": [tensor]})
    assert answer == {
        "model_name": "half_plus_two",
        "model_version": "1",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.5, 3.0]}],
    }
    assert infer(client, "half_plus_two", {"id": "7", "inputs": [tensor]}, "/versions/1") == {**answer, "id": "7"}
    assert "id" not in infer(client, "half_plus_two", {"id": "", "inputs": [tensor]})


BAD_REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"outputs": [{"name": "nothing"}]}, "outputs[0].name: Expected one of 'predictions', "),
    ({"outputs": [{"name": "labels"}, {"name": "labels"}]}, "outputs[1].name"),
    ({"outputs": [{}]}, "outputs[0]"),
    ({"outputs": "labels"}, "outputs"),
    ({"outputs": [{"name": "scores", "parameters": {"classification": 0}}]}, "outputs[0].parameters"),
    ({"outputs": [{"name": "scores", "parameters": {"classification": "3"}}]}, "outputs[0].parameters"),
    ({"outputs": [{"name": "scores", "parameters": {"binary_data": 1}}]}, "outputs[0].parameters"),
    ({"outputs": [{"name": "labels", "parameters": {"classification": 1}}]}, "outputs[0]"),
    ({"parameters": {"output_format": "xml"}}, "parameters.output_format"),
    ({"parameters": {"output_format": ["tensors"]}}, "parameters.output_format"),
    ({"parameters": {"binary_data_output": "yes"}}, "parameters.binary_data_output"),
    ({"parameters": []}, "parameters"),
]


@pytest.mark.parametrize(("extra", "message"), BAD_REQUESTS, ids=str)
def test_bad_output_request_is_rejected(client: Client, extra: dict[str, Any], message: str) -> None:
    response = client.post("/v2/models/detector/infer", json={"inputs": [image_input()], **extra})
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_outputs_of_a_tensor_model_that_are_called_labels_name_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [TensorSpec(name=name, datatype=Datatype.INT64, shape=(-1,)) for name in ("scores", "labels", "class_ids")]
    monkeypatch.setitem(ECHO_MODELS, "echo-scores", specs)
    inputs = [{"name": spec.name, "datatype": "INT64", "shape": [2], "data": [5, 7]} for spec in specs]
    body = {"inputs": inputs, "outputs": [{"name": "scores", "parameters": {"classification": 2}}]}
    with TestClient(app_with_models(("echo-scores",))) as client:
        assert outputs_by_name(infer(client, "echo-scores", body)) == {"scores": ("BYTES", [2], ["7:1", "5:0"])}


def test_classification_of_few_classes_and_of_empty_and_integer_outputs(client: Client) -> None:
    requested_outputs = [{"name": "scores", "parameters": {"classification": 9}}]
    few = infer(client, "classifier", {"inputs": [image_input()], "outputs": requested_outputs})
    assert outputs_by_name(few)["scores"][1] == [1, 3]
    no_detections = infer(
        client, "detector", {"inputs": [image_input(score_threshold=0.95)], "outputs": requested_outputs}
    )
    assert outputs_by_name(no_detections) == {"scores": ("BYTES", [1, 0], [])}
    requested_outputs = [{"name": "num_detections", "parameters": {"classification": 2}}]
    counts = infer(client, "detector", {"inputs": [image_input([IMAGE] * 3)], "outputs": requested_outputs})
    assert outputs_by_name(counts) == {"num_detections": ("BYTES", [2], ["1:0", "1:1"])}


def tensor(datatype: str, shape: list[int], data: object, name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def post(client: Client, model: str, *inputs: dict[str, Any], **body: Any) -> tuple[int, dict[str, Any]]:
    response = client.post(f"/v2/models/{model}/infer", json={"inputs": inputs, **body})
    return response.status_code, response.json()


def echo_data(client: Client, datatype: str, shape: list[int], data: object) -> Any:
    """Return the flat data that the model returns."""
    status, answer = post(client, f"echo-{datatype.lower()}", tensor(datatype, shape, data))
    assert status == 200, answer
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("x", datatype, shape)
    return output["data"]


def error_message(client: Client, model: str, *inputs: dict[str, Any], **body: Any) -> str:
    """Check that a request is rejected, and return the error message."""
    status, answer = post(client, model, *inputs, **body)
    assert status == 400, answer
    assert list(answer) == ["error"]
    return answer["error"]


@pytest.mark.parametrize("datatype", VALUES)
def test_extreme_values_round_trip(client: Client, datatype: str) -> None:
    data = VALUES[datatype]
    result = echo_data(client, datatype, [1, 3], data)
    assert result == data
    assert [type(value) for value in result] == [type(value) for value in data]
    assert echo_data(client, datatype, [3, 1], [[value] for value in data]) == data, "nested rows"
    assert echo_data(client, datatype, [0, 2], []) == []


@pytest.mark.parametrize("datatype", ["INT32", "BOOL", "BYTES"])
def test_shape_that_contradicts_nested_rows_is_rejected(client: Client, datatype: str) -> None:
    rows = [["a", "b", "c"], ["d", "e", "f"]] if datatype == "BYTES" else [[1, 0, 1], [0, 1, 0]]
    model = f"echo-{datatype.lower()}"
    message = error_message(client, model, tensor(datatype, [3, 2], rows))
    assert message == "inputs[0].shape: Expected the shape of the rows in data, [2, 3], got [3, 2]"
    assert "inputs[0].shape" in error_message(client, model, tensor(datatype, [1, 6], rows))
    assert "inputs[0].shape" in error_message(client, model, tensor(datatype, [6, 1], rows))
    assert "inputs[0].data[1]" in error_message(client, model, tensor(datatype, [5, 1], [rows[0], rows[1][:2]]))
    assert len(echo_data(client, datatype, [2, 3], rows)) == 6


def test_names_matter_for_models_with_several_inputs(client: Client) -> None:
    words = tensor("BYTES", [1], ["a"], "words")
    assert "inputs[0].name" in error_message(client, "echo-pair", tensor("INT64", [1], [1], "input-1"), words)
    two = [tensor("FP32", [1], [1], name) for name in ("input-1", "input-2")]
    assert "inputs[0].name" in error_message(client, "half_plus_two", *two)


def test_bf16_and_fp16_in_json_are_rejected(client: Client) -> None:
    message = error_message(client, "echo-bf16", tensor("BF16", [1, 1], [1]))
    assert "inputs[0].datatype: BF16 has no form in JSON" in message
    assert "binary" in error_message(client, "echo-fp16", tensor("FP16", [1, 1], [1]))


def test_inputs_and_outputs_are_matched_by_name(client: Client) -> None:
    numbers = tensor("INT64", [2], [1, 2], "numbers")
    words = tensor("BYTES", [1], ["a"], "words")
    status, answer = post(client, "echo-pair", words, numbers)
    assert status == 200
    assert [output["name"] for output in answer["outputs"]] == ["numbers", "words"]
    status, answer = post(client, "echo-pair", words, numbers, outputs=[{"name": "words"}])
    assert [(output["name"], output["data"]) for output in answer["outputs"]] == [("words", ["a"])]


def test_extra_fields_and_parameters_are_ignored(client: Client) -> None:
    input_tensor = {**tensor("FP32", [1], [1]), "parameters": {"content_type": "np", "n": 1.5}, "extra": 1}
    status, _ = post(
        client, "half_plus_two", input_tensor, model_name="half_plus_two", parameters={"priority": 1, "x": True}
    )
    assert status == 200
