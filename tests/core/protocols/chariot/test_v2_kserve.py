"""Test what chariot-v2-kserve accepts and returns over HTTP besides its golden cases."""

import json
import uuid

import pytest

from tests.support.data.chariot import Client, image_input, infer, items


def test_request_parameters_are_defaults_for_inputs(client: Client) -> None:
    inputs = [image_input(), image_input(score_threshold=0.1)]
    response = infer(client, "detector", *inputs, parameters={"score_threshold": 0.95})
    assert [len(output["data"][0]) for output in response.json()["outputs"]] == [0, 2]


@pytest.mark.parametrize("shape", [[1], [1, 1], [-1], [48, 64, 3], [777], []])
def test_shape_of_encoded_data_is_ignored(client: Client, shape: list[int]) -> None:
    assert len(items(infer(client, "detector", {**image_input(), "shape": shape}))) == 1


def test_id_comes_from_body_then_header_then_is_generated(client: Client) -> None:
    body = {"inputs": [image_input()]}
    headers = {"X-Request-ID": "from-header", "Chariot-Inference-Base-ID": "base"}
    response = client.post("/v2/models/m-detector/infer", json={**body, "id": "from-body"}, headers=headers)
    assert response.json()["id"] == "from-body"
    assert response.headers["x-request-id"] == "from-header"
    assert response.headers["chariot-inference-base-id"] == "base"
    assert client.post("/v2/models/m-detector/infer", json=body, headers=headers).json()["id"] == "from-header"
    generated = client.post("/v2/models/m-detector/infer", json={**body, "id": ""})
    assert uuid.UUID(generated.json()["id"]) == uuid.UUID(generated.headers["x-request-id"])


@pytest.mark.parametrize(
    "path", ["infer", "infer/", "versions/1/infer", "versions/1/infer/"], ids=lambda path: path.replace("/", "-")
)
def test_infer_paths_are_served(client: Client, path: str) -> None:
    for target in ("m-detector", "m-DETECTOR"):
        response = client.post(f"/v2/models/{target}/{path}", json={"inputs": [image_input()]})
        assert response.status_code == 200


@pytest.mark.parametrize(
    "raw",
    [
        rb'"\u00e9\/ \u0041 [{\"key\": 1}]"',
        rb'{"b" : 1.10,  "a":[1e2, 12345678901234567890123], "a": null}',
        *(b"[ ]", b"null", b"12", b'""'),
        json.dumps('not JSON at all \u00e9\u4e2d "quoted" \\ back').encode(),
    ],
)
def test_metadata_json_is_returned_byte_for_byte(client: Client, raw: bytes) -> None:
    body = json.dumps({"inputs": [image_input(metadata=0)]}).encode().replace(b'"metadata": 0', b'"metadata": ' + raw)
    response = client.post("/v2/models/m-detector/infer", content=body)
    assert response.status_code == 200, response.text
    assert b'"parameters":{"metadata":' + raw + b"}" in response.content


def test_invalid_metadata_is_counted_and_inference_succeeds(client: Client) -> None:
    before = _metadata_faults(client)
    broken = {"extended_metadata": [{"key": "a", "type": "int", "value": "x"}, {"key": "b"}]}
    assert infer(client, "detector", image_input(metadata=json.dumps(broken))).status_code == 200
    assert _metadata_faults(client) == before + 2


def _metadata_faults(client: Client) -> float:
    name = 'charioteer_metadata_faults_total{model="detector",protocol="chariot-v2-kserve"} '
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(lines[0].removeprefix(name)) if lines else 0


def test_metadata_and_statistics_accept_chariot_ids(client: Client) -> None:
    for path in ("/v2/models/m-detector", "/v2/models/m-DETECTOR/versions/1"):
        assert client.get(path).json() == client.get("/v2/models/detector").json()
    for path in ("/v2/models/m-detector/stats", "/v2/models/m-detector/versions/1/stats"):
        assert [stats["name"] for stats in client.get(path).json()["model_stats"]] == ["detector"]
    assert client.get("/v2/models/m-missing").status_code == 404
    assert client.get("/v2/models/m-missing/stats").status_code == 404
