"""The Open Inference Protocol over REST: the server, its models, and models of vision tasks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app import __version__
from tests.support.application import build_app
from tests.support.chariot import PICTURE, Client, image_input
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import build

RECORD = {"label": "red", "score": 0.9, "xmin": 10.0, "ymin": 8.0, "xmax": 30.0, "ymax": 40.0}
BORDER = {"label": "border", "score": 0.3, "xmin": 0.0, "ymin": 0.0, "xmax": 5.0, "ymax": 48.0}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(build(("classifier", "detector", "failing", "half_plus_two", "teller"))) as client:
        yield client


def ask(client: Client, model: str, body: dict[str, Any], version: str = "") -> dict[str, Any]:
    """The answer to a V2 request."""
    response = client.post(f"/v2/models/{model}{version}/infer", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def outputs(answer: dict[str, Any]) -> dict[str, tuple[str, list[int], list[Any]]]:
    """By name: datatype, shape and data."""
    return {each["name"]: (each["datatype"], each["shape"], each["data"]) for each in answer["outputs"]}


def test_the_server_says_what_it_is(client: Client) -> None:
    for path in ("/v2", "/v2/"):
        about = client.get(path).json()
        assert about["name"] == "charioteer"
        assert about["version"] == __version__
        assert {"binary_tensor_data", "classification", "model_repository", "parameters", "statistics"} <= {
            *about["extensions"]
        }


def test_it_is_live_and_ready(client: Client) -> None:
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models").json() == {
        "models": ["classifier", "detector", "failing", "half_plus_two", "teller"]
    }


def test_it_is_live_before_it_is_ready() -> None:
    with TestClient(build_app(("detector",), "chariot-v2-kserve", loaded=False)) as client:
        assert client.get("/v2/health/live").json() == {"live": True}
        ready = client.get("/v2/health/ready")
        assert ready.status_code == 503
        assert ready.json()["ready"] is False
        assert ready.json()["error"]
        for path in ("/v2/models/detector", "/v2/models/detector/ready", "/v2/models/detector/versions/1/ready"):
            response = client.get(path)
            assert response.status_code == 503
            assert list(response.json()) == ["error"]
        assert client.post("/v2/models/detector/infer", json={"inputs": [image_input()]}).status_code == 503


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_metadata_of_a_tensor_model_is_that_of_its_graph(client: Client, version: str) -> None:
    assert client.get(f"/v2/models/half_plus_two{version}").json() == {
        "name": "half_plus_two",
        "versions": ["1"],
        "platform": "onnx_onnxv1",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    }
    assert client.get(f"/v2/models/half_plus_two{version}/ready").json() == {"name": "half_plus_two", "ready": True}


@pytest.mark.parametrize("model", ["classifier", "detector", "half_plus_two", "teller"])
def test_metadata_is_true(client: Client, model: str) -> None:
    about = client.get(f"/v2/models/{model}").json()
    (given,) = about["inputs"]
    data, shape = ([PICTURE], [1]) if given["datatype"] == "BYTES" else ([1.0], [1])
    tensor = {"name": given["name"], "datatype": given["datatype"], "shape": shape, "data": data}
    wanted = [{"name": each["name"]} for each in about["outputs"]]
    answer = ask(client, model, {"inputs": [tensor], "outputs": wanted})
    assert [each["name"] for each in answer["outputs"]] == [each["name"] for each in about["outputs"]]
    for got, said in zip(answer["outputs"], about["outputs"], strict=True):
        assert got["datatype"] == said["datatype"]
        assert len(got["shape"]) == len(said["shape"])
        assert all(size in (-1, real) for size, real in zip(said["shape"], got["shape"], strict=True))


@pytest.mark.parametrize("method", ["GET /v2/models/{}", "GET /v2/models/{}/ready", "POST /v2/models/{}/infer"])
@pytest.mark.parametrize("address", ["nobody", "detector/versions/2", "detector/versions/x", "%20", "..%2fetc"])
def test_unknown_models_and_versions(client: Client, method: str, address: str) -> None:
    verb, path = method.split(" ")
    response = client.request(verb, path.format(address), json={"inputs": [image_input()]})
    assert response.status_code == 404
    assert list(response.json()) == ["error"]


def test_wrong_methods_and_paths(client: Client) -> None:
    assert client.post("/v2/health/live").status_code == 405
    assert client.get("/v2/models/detector/infer").status_code == 405
    unknown = client.get("/v2/models/detector/nothing")
    assert unknown.status_code == 404
    assert list(unknown.json()) == ["error"]


def test_an_id_is_given_back_only_when_there_was_one(client: Client) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    answer = ask(client, "half_plus_two", {"inputs": [tensor]})
    assert answer == {
        "model_name": "half_plus_two",
        "model_version": "1",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.5, 3.0]}],
    }
    assert ask(client, "half_plus_two", {"id": "7", "inputs": [tensor]}, "/versions/1") == {**answer, "id": "7"}
    assert "id" not in ask(client, "half_plus_two", {"id": "", "inputs": [tensor]})


def test_a_task_answers_with_json_strings(client: Client) -> None:
    answer = ask(client, "detector", {"inputs": [image_input([PICTURE, PICTURE], name="whatever")]})
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("predictions", "BYTES", [2])
    assert [json.loads(each) for each in output["data"]] == [[RECORD], [RECORD]]


def test_several_inputs_are_one_batch(client: Client) -> None:
    other = base64_text(encoded(rectangle(colour=(0, 255, 0))))
    body = {"inputs": [image_input(name="a"), image_input(other, name="b")], "parameters": {"score_threshold": 0.5}}
    ((_, shape, data),) = outputs(ask(client, "detector", body)).values()
    assert shape == [2]
    assert [[each["label"] for each in json.loads(item)] for item in data] == [["red"], ["green"]]


def test_a_task_answers_with_tensors_when_asked_to(client: Client) -> None:
    body = {
        "inputs": [image_input(score_threshold=0.1), image_input(name="b")],
        "parameters": {"output_format": "tensors"},
    }
    found = outputs(ask(client, "detector", body))
    assert list(found) == ["num_detections", "labels", "scores", "boxes"]
    assert found["num_detections"] == ("INT32", [2], [2, 1])
    assert found["labels"] == ("BYTES", [2, 2], ["red", "border", "red", ""])
    assert found["scores"][:2] == ("FP32", [2, 2])
    assert found["scores"][2] == pytest.approx([0.9, 0.3, 0.9, 0])
    assert found["boxes"][:2] == ("FP32", [2, 2, 4])
    assert found["boxes"][2] == [10, 8, 30, 40, 0, 0, 5, 48, 10, 8, 30, 40, 0, 0, 0, 0]


def test_outputs_are_those_named_in_the_order_named(client: Client) -> None:
    wanted = [{"name": "scores"}, {"name": "predictions"}, {"name": "labels"}]
    found = outputs(ask(client, "detector", {"inputs": [image_input()], "outputs": wanted}))
    assert list(found) == ["scores", "predictions", "labels"]
    assert [json.loads(each) for each in found["predictions"][2]] == [[RECORD]]
    assert found["labels"] == ("BYTES", [1, 1], ["red"])


def test_nothing_found_is_empty_tensors(client: Client) -> None:
    body = {"inputs": [image_input(score_threshold=0.95)], "parameters": {"output_format": "tensors"}}
    found = outputs(ask(client, "detector", body))
    assert found["num_detections"] == ("INT32", [1], [0])
    assert found["boxes"] == ("FP32", [1, 0, 4], [])


UNWANTED: list[tuple[dict[str, Any], str]] = [
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


@pytest.mark.parametrize(("extra", "said"), UNWANTED, ids=str)
def test_what_cannot_be_wanted(client: Client, extra: dict[str, Any], said: str) -> None:
    response = client.post("/v2/models/detector/infer", json={"inputs": [image_input()], **extra})
    assert response.status_code == 400
    assert said in response.json()["error"]


def test_classification_is_text(client: Client) -> None:
    picture = base64_text(encoded(rectangle(colour=(51, 255, 0))))
    body = {
        "inputs": [image_input([picture, PICTURE])],
        "outputs": [{"name": "scores", "parameters": {"classification": 2}}],
    }
    # Red, class 0, has a fifth of green, class 1; blue has nothing.
    data = ["0.833333:1:green", "0.166667:0:red", "1.000000:0:red", "0.000000:1:green"]
    assert outputs(ask(client, "classifier", body)) == {"scores": ("BYTES", [2, 2], data)}


def test_more_classes_than_there_are(client: Client) -> None:
    body = {"inputs": [image_input()], "outputs": [{"name": "scores", "parameters": {"classification": 9}}]}
    assert outputs(ask(client, "classifier", body))["scores"][1] == [1, 3]


def test_classification_of_nothing_and_of_numbers(client: Client) -> None:
    wanted = [{"name": "scores", "parameters": {"classification": 3}}]
    nothing = ask(client, "detector", {"inputs": [image_input(score_threshold=0.95)], "outputs": wanted})
    assert outputs(nothing) == {"scores": ("BYTES", [1, 0], [])}
    wanted = [{"name": "num_detections", "parameters": {"classification": 2}}]
    counted = ask(client, "detector", {"inputs": [image_input([PICTURE] * 3)], "outputs": wanted})
    assert outputs(counted) == {"num_detections": ("BYTES", [2], ["1:0", "1:1"])}


def test_parameters_reach_the_task(client: Client) -> None:
    body = {"inputs": [image_input()], "parameters": {"score_threshold": 0.1, "labels": "border"}}
    (data,) = ask(client, "detector", body)["outputs"][0]["data"]
    assert json.loads(data) == [BORDER]
    prompts = {"inputs": [image_input(prompts=["what?"])]}
    (data,) = ask(client, "teller", prompts)["outputs"][0]["data"]
    assert json.loads(data) == [{"prompt": "what?", "answer": "64x48"}]


def test_a_model_that_fails_is_a_server_error_with_a_sentence(client: Client) -> None:
    response = client.post("/v2/models/failing/infer", json={"inputs": [image_input()]})
    assert response.status_code == 500
    assert list(response.json()) == ["error"]


def test_chariot_still_answers_on_the_same_path(client: Client) -> None:
    body = {"inputs": [image_input()]}
    nested = client.post("/v2/models/m-detector/infer", json=body).json()
    assert nested["outputs"][0]["data"] == [[RECORD]]
    plain = ask(client, "detector", body)
    assert plain["outputs"][0]["data"] == [json.dumps([RECORD], separators=(",", ":"))]
