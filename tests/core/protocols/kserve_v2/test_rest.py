"""Test the Open Inference Protocol over REST: server, models and outputs, besides its golden cases."""

from typing import Any

import pytest
from litestar.testing import TestClient

from app import __version__
from tasks.inference.tensor import Datatype, TensorSpec
from tests.core.protocols.kserve_v2.test_grpc_codec import VALUES
from tests.support.data.chariot import IMAGE, Client, image_input
from tests.support.servers.apps import ALL_MODELS, ECHO_MODELS, app_with_models


def infer(client: Client, model: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a V2 request and return the response."""
    response = client.post(f"/v2/models/{model}/infer", json=body)
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


def echo_data(client: Client, datatype: str, shape: list[int], data: object) -> Any:
    """Return the flat data that the model returns."""
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "data": data}
    (output,) = infer(client, f"echo-{datatype.lower()}", {"inputs": [tensor]})["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("x", datatype, shape)
    return output["data"]


@pytest.mark.parametrize("datatype", VALUES)
def test_extreme_values_round_trip(client: Client, datatype: str) -> None:
    data = VALUES[datatype]
    result = echo_data(client, datatype, [1, 3], data)
    assert result == data
    assert [type(value) for value in result] == [type(value) for value in data]
    assert echo_data(client, datatype, [3, 1], [[value] for value in data]) == data, "nested rows"
    assert echo_data(client, datatype, [0, 2], []) == []
