"""Test images, texts and prompts as inputs, and bodies that try to break the server."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.plugins.tensorflow_serving.test_predict import Client, error_message, listener_client
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.servers.apps import load_test_model, model_source
from tests.support.servers.grpc_server import build_engine_from_sources

MODELS = ("classifier", "detector", "teller", "sorter", "tagger", "half_plus_two", "echo-pair", "echo-int64", "greeter")
DETECT, TELL, SORT = (f"/v1/models/{name}:predict" for name in ("detector", "teller", "sorter"))
IMAGE = {"b64": encode_base64(encode_image(rectangle()))}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    engine = build_engine_from_sources([model_source(name) for name in MODELS], load_test_model)
    with listener_client(engine) as client:
        yield client


def test_bad_image_error_names_input_and_row(client: Client) -> None:
    broken = {"b64": "aGVsbG8="}
    for body in ({"instances": [IMAGE, broken]}, {"inputs": {"image": [IMAGE, broken]}}):
        assert error_message(client, DETECT, body, 400).startswith("image[1]: ")
    body = {"examples": [{"image": IMAGE}, {"image": broken}]}
    assert error_message(client, "/v1/models/classifier:classify", body, 400).startswith("image[1]: ")


NOT_UTF8 = {"b64": "/w=="}
REJECTED: list[tuple[str, dict[str, Any], str]] = [
    (DETECT, {"instances": [{"image": IMAGE, "image_bytes": IMAGE}]},
     "instances[0]: Expected one of 'image', got 'image_bytes'"),
    (DETECT, {"instances": [{"image_bytes": IMAGE, "data": IMAGE}]},
     "instances[0]: Expected a value for the input 'image', got none"),
    (TELL, {"inputs": {"image": [IMAGE] * 2, "prompts": ["a"]}},
     "prompts: Expected prompts for each of the 2 images, got 1 rows of them"),
    (TELL, {"inputs": {"image": IMAGE, "prompts": [[["a"]]]}},
     "prompts: Expected texts, or a list of texts for each image"),
    (TELL, {"inputs": {"image": [IMAGE], "prompts": [NOT_UTF8]}},
     "prompts[0]: Expected text in UTF-8, got other bytes"),
    (TELL, {"inputs": {"image": [[IMAGE, IMAGE]], "prompts": ["a"]}},
     "image: Expected one image or text in each of 1 rows, got 2"),
    (TELL, {"instances": [{"image": IMAGE, "prompt": "a"}, {"image": IMAGE}]},
     "instances[1]: Expected a value for the input 'prompts', got none"),
    (SORT, {"instances": [["red", "blue"]] * 2}, "args: Expected one image or text in each of 2 rows, got 4"),
    (SORT, {"inputs": [["red", "blue"]] * 2}, "args: Expected one image or text in each of 2 rows, got 4"),
    (SORT, {"inputs": []}, "args: Expected at least one text, got none"),
    (SORT, {"instances": [NOT_UTF8]}, "args[0]: Expected text in UTF-8, got other bytes"),
    (SORT, {"instances": [{"text": "a", "prompt": "b"}]},
     "instances[0]: Expected a value for the input 'args', got none"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "message"), REJECTED)
def test_wrong_images_texts_and_prompts_are_rejected(client: Client, path: str, body: object, message: str) -> None:
    assert error_message(client, path, body, 400) == message


PIXELS = [[[[9, 9, 9]] * 4] * 3] * 2


@pytest.mark.parametrize(
    ("image", "prompts", "answers"), [(PIXELS, ["a", "b"], [["4x3"]] * 2), (PIXELS[0], "a", [["4x3"]])]
)
def test_each_image_has_its_prompts(client: Client, image: object, prompts: object, answers: object) -> None:
    response = client.post(TELL, json={"inputs": {"image": image, "prompts": prompts}})
    assert response.json()["outputs"]["answers"] == answers


@pytest.mark.parametrize(
    ("image", "prompts"), [("image", "prompt"), ("image_bytes", "prompts"), ("data", "question"), ("image", "text")]
)
def test_inputs_are_accepted_under_alternative_names(client: Client, image: str, prompts: str) -> None:
    row = {image: IMAGE, prompts: "How large?"}
    rows = client.post(TELL, json={"instances": [row]})
    assert rows.json()["predictions"] == [{"num_prompts": 1, "prompts": ["How large?"], "answers": ["64x48"]}]
    columns = client.post(TELL, json={"inputs": {name: [row[name]] for name in row}})
    assert columns.json()["outputs"]["answers"] == [["64x48"]]


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


def test_detections_of_several_images_are_padded_to_one_tensor(client: Client) -> None:
    black_image, red_image = (
        {"b64": encode_base64(encode_image(rectangle(colour=colour)))} for colour in ((0, 0, 0), (255, 0, 0))
    )
    body = {"instances": [black_image, red_image]}
    first, second = client.post("/v1/models/detector:predict", json=body).json()["predictions"]
    assert (first["num_detections"], second["num_detections"]) == (0, 1)
    assert (first["boxes"], second["boxes"]) == ([[0.0] * 4], [[10.0, 8.0, 30.0, 40.0]])
    assert (first["labels"], second["labels"]) == ([""], ["red"])


def test_rows_of_grey_pixels_are_separate_images(client: Client) -> None:
    dark = [[0, 0, 0], [0, 0, 0]]
    bright = [[0, 255, 255], [0, 0, 0]]
    predictions = client.post(DETECT, json={"instances": [dark, bright, bright]}).json()["predictions"]
    assert [prediction["num_detections"] for prediction in predictions] == [0, 1, 1]
    assert predictions[2]["boxes"] == [[1.0, 0.0, 3.0, 1.0]]
    normalized = [[[0.0, 1, 1.0], [0.0, 0.0, 0.0]]]
    assert client.post(DETECT, json={"instances": normalized}).json()["predictions"] == predictions[2:]


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
