"""chariot-v2-kserve over HTTP, with stand-in models."""

import json
import math
import uuid
from typing import Any, cast

import pytest
from litestar.testing import TestClient

from tests.support.application import build_app
from tests.support.chariot import PICTURE, Client, image_input, infer, items
from tests.support.pictures import base64_text, encoded, rectangle, turned_rectangle


def test_detection_is_answered_in_the_chariot_envelope(client: Client) -> None:
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


def test_nothing_found_is_an_empty_list_in_the_list(client: Client) -> None:
    response = infer(client, "detector", image_input(score_threshold=0.95))
    assert response.json()["outputs"][0]["data"] == [[]]
    assert response.json()["outputs"][0]["shape"] == [1]


def test_boxes_are_clipped_to_the_image(client: Client) -> None:
    found = items(infer(client, "detector", image_input(score_threshold=0.1, labels=["border"])))
    assert found == [{"label": "border", "score": 0.3, "xmin": 0.0, "ymin": 0.0, "xmax": 5.0, "ymax": 48.0}]


def test_top_k_keeps_the_best(client: Client) -> None:
    assert len(items(infer(client, "detector", image_input(score_threshold=0.1)))) == 2
    assert [item["label"] for item in items(infer(client, "detector", image_input(score_threshold=0.1, top_k=1)))] == [
        "red"
    ]


def test_parameters_of_the_request_are_defaults_of_its_inputs(client: Client) -> None:
    inputs = [image_input(), image_input(score_threshold=0.1)]
    response = infer(client, "detector", *inputs, parameters={"score_threshold": 0.95})
    assert [len(output["data"][0]) for output in response.json()["outputs"]] == [0, 2]


def test_classification_actions(client: Client) -> None:
    pixels = rectangle(colour=(255, 51, 0))
    picture = base64_text(encoded(pixels))
    every = items(infer(client, "classifier", image_input(picture, action="predict_proba")))
    assert every == [
        {"label": "red", "score": pytest.approx(255 / 306, abs=1e-6)},
        {"label": "green", "score": pytest.approx(51 / 306, abs=1e-6)},
        {"label": "blue", "score": 0.0},
    ]
    assert items(infer(client, "classifier", image_input(picture, action="predict"))) == every[:1]
    assert items(infer(client, "classifier", image_input(picture, action="no such action"))) == every
    assert items(infer(client, "classifier", image_input(picture, top_k=2))) == every[:2]


@pytest.mark.parametrize("radians", [-1.2, -0.5, 0.0, 0.3, 0.9, 1.4])
def test_oriented_boxes_are_scaled_without_regard_to_their_rotation(client: Client, radians: float) -> None:
    picture = base64_text(encoded(turned_rectangle(600, 200, (300, 100), (160, 24), radians)))
    (item,) = items(infer(client, "oriented", image_input(picture)))
    assert item["cx"] == pytest.approx(300 / 600, abs=0.003)
    assert item["cy"] == pytest.approx(100 / 200, abs=0.006)
    assert item["w"] == pytest.approx(160 / 600, abs=0.006)
    assert item["h"] == pytest.approx(24 / 200, abs=0.02)
    assert item["r"] == pytest.approx(radians, abs=0.02)


def test_segmentation_gives_contours_of_points(client: Client) -> None:
    (item,) = items(infer(client, "segmenter", image_input()))
    corners = [{"x": 10.0, "y": 8.0}, {"x": 10.0, "y": 39.0}, {"x": 29.0, "y": 39.0}, {"x": 29.0, "y": 8.0}]
    assert item == {"label": "red", "score": 0.7, "contour": [corners]}


@pytest.mark.parametrize("prompts", [["what?", "why?"], '["what?", "why?"]'])
def test_prompts_are_answered_in_order(client: Client, prompts: object) -> None:
    found = items(infer(client, "teller", image_input(prompts=prompts)))
    assert found == [{"prompt": "what?", "answer": "64x48"}, {"prompt": "why?", "answer": "64x48"}]


def test_a_prompt_is_made_up_when_there_is_none(client: Client) -> None:
    assert items(infer(client, "teller", image_input())) == [{"prompt": "What is in the picture?", "answer": "64x48"}]


def test_text_inputs_are_prompts(client: Client) -> None:
    text = {"name": "prompt", "shape": [1], "datatype": "BYTES", "data": ["what?"]}
    response = infer(client, "teller", image_input(), text, image_input(name="b", prompts=["own?"]))
    assert [output["name"] for output in response.json()["outputs"]] == ["image-0", "b"]
    assert items(response)[0]["prompt"] == "what?"
    assert items(response, 1)[0]["prompt"] == "own?"


def test_a_long_text_that_looks_like_base64_stays_text(client: Client) -> None:
    question = "what" * 100
    text = {"name": "q", "shape": [1], "datatype": "BYTES", "data": [question], "parameters": {"content_type": "str"}}
    assert items(infer(client, "teller", text, image_input()))[0]["prompt"] == question


def test_several_images_of_several_sizes(client: Client) -> None:
    other = base64_text(encoded(rectangle(200, 100, (50, 20, 90, 60), (0, 255, 0)), "JPEG", quality=95))
    response = infer(client, "detector", image_input([PICTURE, other]), image_input(other, name="b"))
    outputs = response.json()["outputs"]
    assert [output["name"] for output in outputs] == ["image-0", "b"]
    assert [output["shape"] for output in outputs] == [[2], [1]]
    assert [[item["label"] for item in datum] for datum in outputs[0]["data"]] == [["red"], ["green"]]
    assert outputs[0]["data"][1] == outputs[1]["data"][0]


@pytest.mark.parametrize(
    "spelling",
    [
        f"data:image/png;base64,{PICTURE}",
        "\n".join(PICTURE[i : i + 76] for i in range(0, len(PICTURE), 76)),
        PICTURE.replace("+", "-").replace("/", "_"),
        PICTURE.rstrip("="),
    ],
    ids=["data URI", "lines", "URL-safe", "no padding"],
)
def test_ways_to_write_base64(client: Client, spelling: str) -> None:
    plain = items(infer(client, "detector", image_input()))
    assert items(infer(client, "detector", image_input(spelling))) == plain


def test_data_may_be_a_bare_string(client: Client) -> None:
    wire = {**image_input(), "data": PICTURE}
    assert len(items(infer(client, "detector", wire))) == 1


@pytest.mark.parametrize("shape", [[1], [1, 1], [-1], [48, 64, 3], [777], []])
def test_shape_is_not_compared_with_encoded_data(client: Client, shape: list[int]) -> None:
    assert len(items(infer(client, "detector", {**image_input(), "shape": shape}))) == 1


@pytest.mark.parametrize("content_type", [None, "np"])
def test_raw_pixels(client: Client, content_type: str | None) -> None:
    pixels = rectangle()
    parameters = {"content_type": content_type} if content_type else {}
    raw: dict[str, Any] = image_input()
    raw.update(shape=[48, 64, 3], datatype="UINT8", data=pixels.ravel().tolist(), parameters=parameters)
    nested = {**raw, "data": pixels.tolist()}
    batch = {**raw, "shape": [2, -1, 64, 3], "data": [pixels.tolist(), pixels.tolist()]}
    grey = {**raw, "shape": [48, 64], "data": pixels[:, :, 0].tolist(), "datatype": "INT64"}
    fraction = {**raw, "datatype": "FP32", "data": (pixels / 255).ravel().tolist()}
    response = infer(client, "detector", raw, nested, batch, grey, fraction)
    expected = items(infer(client, "detector", image_input()))
    outputs = response.json()["outputs"]
    assert outputs[0]["data"] == outputs[1]["data"] == outputs[4]["data"] == [expected]
    assert outputs[2]["data"] == [expected, expected]
    assert outputs[3]["data"][0][0]["xmax"] == 30


def test_ids_come_from_the_body_then_the_header_then_nowhere(client: Client) -> None:
    body = {"inputs": [image_input()]}
    headers = {"X-Request-ID": "from-header", "Chariot-Inference-Base-ID": "base"}
    answered = client.post("/v2/models/m-detector/infer", json={**body, "id": "from-body"}, headers=headers)
    assert answered.json()["id"] == "from-body"
    assert answered.headers["x-request-id"] == "from-header"
    assert answered.headers["chariot-inference-base-id"] == "base"
    assert client.post("/v2/models/m-detector/infer", json=body, headers=headers).json()["id"] == "from-header"
    made = client.post("/v2/models/m-detector/infer", json={**body, "id": ""})
    assert uuid.UUID(made.json()["id"]) == uuid.UUID(made.headers["x-request-id"])


def test_ids_are_returned_with_errors_too(client: Client) -> None:
    response = client.post("/v2/models/m-detector/infer", content=b"{", headers={"X-Request-ID": "r"})
    assert response.status_code == 400
    assert response.headers["x-request-id"] == "r"


@pytest.mark.parametrize(
    "path", ["infer", "infer/", "versions/1/infer", "versions/1/infer/"], ids=lambda path: path.replace("/", "-")
)
def test_paths(client: Client, path: str) -> None:
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
def test_metadata_strings_come_back_unchanged(client: Client, metadata: str) -> None:
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
def test_metadata_comes_back_byte_for_byte(client: Client, raw: bytes) -> None:
    body = json.dumps({"inputs": [image_input(metadata=0)]}).encode().replace(b'"metadata": 0', b'"metadata": ' + raw)
    response = client.post("/v2/models/m-detector/infer", content=body)
    assert response.status_code == 200, response.text
    assert b'"parameters":{"metadata":' + raw + b"}" in response.content


def test_unreadable_metadata_is_counted_and_the_inference_answered(client: Client) -> None:
    before = _faults(client)
    broken = {"extended_metadata": [{"key": "a", "type": "int", "value": "x"}, {"key": "b"}]}
    assert infer(client, "detector", image_input(metadata=json.dumps(broken))).status_code == 200
    assert _faults(client) == before + 2


def _faults(client: Client) -> float:
    name = 'charioteer_metadata_faults_total{model="detector",protocol="chariot-v2-kserve"} '
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(lines[0].removeprefix(name)) if lines else 0


def test_health(client: Client) -> None:
    assert client.get("/ready").json() == {"status": "ready"}
    assert client.get("/ready/").status_code == 200
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/v2/models/m-detector/ready").json() == {"name": "detector", "ready": True}
    assert client.get("/v2/models/m-detector/versions/1/ready").status_code == 200
    assert client.get("/").json()["status"] == "alive"


def test_metadata_and_statistics_know_chariot_ids(client: Client) -> None:
    for path in ("/v2/models/m-detector", "/v2/models/m-DETECTOR/versions/1"):
        assert client.get(path).json() == client.get("/v2/models/detector").json()
    for path in ("/v2/models/m-detector/stats", "/v2/models/m-detector/versions/1/stats"):
        assert [each["name"] for each in client.get(path).json()["model_stats"]] == ["detector"]
    assert client.get("/v2/models/m-nobody").status_code == 404
    assert client.get("/v2/models/m-nobody/stats").status_code == 404


def test_a_model_that_is_still_loading() -> None:
    with TestClient(build_app(("detector",), "chariot-v2-kserve", loaded=False)) as client:
        response = client.post("/infer", json={"inputs": [image_input()]})
        assert response.status_code == 503
        assert response.json() == {"error": "Model 'detector' version '1' is not ready: not loaded yet"}
        assert client.get("/ready").status_code == 503
        assert "detector" in client.get("/ready").json()["error"]
        assert client.get("/v2/models/m-detector/ready").status_code == 503
        assert client.get("/health").status_code == 200


def test_the_only_model_answers_to_every_id() -> None:
    with TestClient(build_app(("detector",), "chariot-v2-kserve")) as client:
        for path in ("/infer", "/infer/", "/v2/models/m-2nxtsa3/infer/", "/v2/models/m-anything/versions/1/infer"):
            assert len(items(client.post(path, json={"inputs": [image_input()]}))) == 1


def test_no_number_is_rendered_that_is_not_finite(client: Client) -> None:
    for model in ("detector", "oriented", "segmenter", "classifier"):
        text = infer(client, model, image_input(score_threshold=0)).text
        assert all(math.isfinite(value) for value in _numbers(json.loads(text, parse_constant=float)))


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        value = list(cast("dict[str, object]", value).values())
    if isinstance(value, list):
        return [number for child in cast("list[object]", value) for number in _numbers(child)]
    return [value] if isinstance(value, float) else []
