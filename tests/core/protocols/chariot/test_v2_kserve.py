"""Test chariot-v2-kserve over HTTP with fake models."""

import json
import uuid
from typing import Any

import pytest

from tests.support.data.chariot import IMAGE, Client, image_input, infer, items
from tests.support.data.images import encode_base64, encode_image, rectangle


def test_detection_returns_the_chariot_response_format(client: Client) -> None:
    response = infer(client, "detector", image_input(name="input-image-0"), id="abc")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "id": "abc",
        "model_name": "detector",
        "model_version": "1",
        "outputs": [
            {
                "name": "input-image-0",
                "shape": [1],
                "datatype": "BYTES",
                "data": [[{"label": "red", "score": 0.9, "xmin": 10.0, "ymin": 8.0, "xmax": 30.0, "ymax": 40.0}]],
            }
        ],
    }


def test_no_detections_is_a_nested_empty_list(client: Client) -> None:
    response = infer(client, "detector", image_input(score_threshold=0.95))
    assert response.json()["outputs"][0]["data"] == [[]]
    assert response.json()["outputs"][0]["shape"] == [1]


def test_request_parameters_are_defaults_for_inputs(client: Client) -> None:
    inputs = [image_input(), image_input(score_threshold=0.1)]
    response = infer(client, "detector", *inputs, parameters={"score_threshold": 0.95})
    assert [len(output["data"][0]) for output in response.json()["outputs"]] == [0, 2]


def test_segmentation_returns_contours_of_points(client: Client) -> None:
    (item,) = items(infer(client, "segmenter", image_input()))
    corners = [{"x": 10.0, "y": 8.0}, {"x": 10.0, "y": 39.0}, {"x": 29.0, "y": 39.0}, {"x": 29.0, "y": 8.0}]
    assert item == {"label": "red", "score": 0.7, "contour": [corners]}


@pytest.mark.parametrize("prompts", [["what?", "why?"], '["what?", "why?"]'])
def test_prompts_are_answered_in_order(client: Client, prompts: object) -> None:
    answers = items(infer(client, "teller", image_input(prompts=prompts)))
    assert answers == [{"prompt": "what?", "answer": "64x48"}, {"prompt": "why?", "answer": "64x48"}]


def test_images_of_different_sizes_in_one_request_are_answered(client: Client) -> None:
    green_image = encode_base64(encode_image(rectangle(200, 100, (50, 20, 90, 60), (0, 255, 0)), "JPEG", quality=95))
    response = infer(client, "detector", image_input([IMAGE, green_image]), image_input(green_image, name="b"))
    outputs = response.json()["outputs"]
    assert [output["name"] for output in outputs] == ["image-0", "b"]
    assert [output["shape"] for output in outputs] == [[2], [1]]
    assert [[item["label"] for item in datum] for datum in outputs[0]["data"]] == [["red"], ["green"]]
    assert outputs[0]["data"][1] == outputs[1]["data"][0]


@pytest.mark.parametrize("shape", [[1], [1, 1], [-1], [48, 64, 3], [777], []])
def test_shape_of_encoded_data_is_ignored(client: Client, shape: list[int]) -> None:
    assert len(items(infer(client, "detector", {**image_input(), "shape": shape}))) == 1


@pytest.mark.parametrize("content_type", [None, "np"])
def test_raw_pixels_are_accepted_in_all_layouts(client: Client, content_type: str | None) -> None:
    pixels = rectangle()
    parameters = {"content_type": content_type} if content_type else {}
    raw: dict[str, Any] = image_input()
    raw.update(shape=[48, 64, 3], datatype="UINT8", data=pixels.ravel().tolist(), parameters=parameters)
    nested = {**raw, "data": pixels.tolist()}
    batch = {**raw, "shape": [2, -1, 64, 3], "data": [pixels.tolist(), pixels.tolist()]}
    grey = {**raw, "shape": [48, 64], "data": pixels[:, :, 0].tolist(), "datatype": "INT64"}
    normalized = {**raw, "datatype": "FP32", "data": (pixels / 255).ravel().tolist()}
    response = infer(client, "detector", raw, nested, batch, grey, normalized)
    expected = items(infer(client, "detector", image_input()))
    outputs = response.json()["outputs"]
    assert outputs[0]["data"] == outputs[1]["data"] == outputs[4]["data"] == [expected]
    assert outputs[2]["data"] == [expected, expected]
    assert outputs[3]["data"][0][0]["xmax"] == 30


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


def test_request_id_is_returned_with_errors(client: Client) -> None:
    response = client.post("/v2/models/m-detector/infer", content=b"{", headers={"X-Request-ID": "r"})
    assert response.status_code == 400
    assert response.headers["x-request-id"] == "r"


@pytest.mark.parametrize(
    "path", ["infer", "infer/", "versions/1/infer", "versions/1/infer/"], ids=lambda path: path.replace("/", "-")
)
def test_infer_paths_are_served(client: Client, path: str) -> None:
    for target in ("m-detector", "m-DETECTOR"):
        response = client.post(f"/v2/models/{target}/{path}", json={"inputs": [image_input()]})
        assert response.status_code == 200


METADATA = [
    json.dumps({"standard_metadata": {}, "extended_metadata": [{"key": "a", "type": "int", "value": "1"}]}),
    '[ {"key":"a",  "type":"float","value":"1.50"} ]',
    'not JSON at all \u00e9\u4e2d "quoted" \\ back',
    "",
]


@pytest.mark.parametrize("metadata", METADATA)
def test_metadata_string_is_returned_unchanged(client: Client, metadata: str) -> None:
    response = infer(client, "detector", image_input(metadata=metadata, score_threshold=0.5), image_input())
    first, second = response.json()["outputs"]
    assert first["parameters"] == {"metadata": metadata}
    assert "parameters" not in second


@pytest.mark.parametrize(
    "raw",
    [
        rb'"\u00e9\/ \u0041 [{\"key\": 1}]"',
        rb'{"b" : 1.10,  "a":[1e2, 12345678901234567890123], "a": null}',
        b"[ ]",
        b"null",
        b"12",
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
