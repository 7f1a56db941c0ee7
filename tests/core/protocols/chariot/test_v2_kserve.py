"""Test what chariot-v2-kserve accepts, rejects and returns over HTTP besides its golden cases."""

import json
import uuid

import pytest

from tests.support.data.chariot import Client, image_input, infer, items
from tests.support.data.images import encode_base64, encode_image, rectangle


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
    "raw",
    [
        rb'"\u00e9\/ \u0041 [{\"key\": 1}]"',
        rb'{"b" : 1.10,  "a":[1e2, 12345678901234567890123], "a": null}',
        *(b"[ ]", b"null", b"12", b'""'),
        rb'"caf\udce9.jpg"',
        rb'{"\uDC00":["\ud83d", {"metadata" : "\ude00 \ud83d\ude00 \\udce9"}], "b": 1.10}',
        json.dumps('not JSON at all \u00e9\u4e2d "quoted" \\ back').encode(),
    ],
)
def test_metadata_json_is_returned_byte_for_byte(client: Client, raw: bytes) -> None:
    body = json.dumps({"inputs": [image_input(metadata=0)]}).encode().replace(b'"metadata": 0', b'"metadata": ' + raw)
    response = client.post("/v2/models/m-detector/infer", content=body)
    assert response.status_code == 200, response.text
    assert b'"parameters":{"metadata":' + raw + b"}" in response.content


def test_lone_surrogates_of_several_inputs_are_returned_with_their_output(client: Client) -> None:
    body = json.dumps({"inputs": [image_input(metadata=f"{number}\udce9\u00e9") for number in range(20)]})
    outputs = client.post("/v2/models/m-detector/infer", content=body.encode()).json()["outputs"]
    assert [output["parameters"]["metadata"] for output in outputs] == [f"{number}\udce9\u00e9" for number in range(20)]


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


def test_deeply_nested_text_of_a_parameter_is_rejected(client: Client) -> None:
    response = infer(client, "detector", image_input(labels="[" * 100_000))
    assert response.status_code == 400
    assert "inputs[0].parameters.labels" in response.json()["error"]
    assert items(infer(client, "detector", image_input()))


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_truncated_image_is_rejected(client: Client, file_format: str) -> None:
    image_bytes = encode_image(rectangle(200, 150), file_format)
    response = infer(client, "detector", image_input(encode_base64(image_bytes[: int(len(image_bytes) * 0.9)])))
    assert response.status_code == 400
    assert response.json()["error"].startswith("inputs[0].data[0]: ")
