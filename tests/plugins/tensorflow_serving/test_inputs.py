"""Test images, texts and prompts as inputs, and bodies that try to break the server."""

from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.server.http.asgi import create_listener_app
from app.plugins.tensorflow_serving.routes import TensorFlowServing
from tests.plugins.tensorflow_serving.test_predict import error_message
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.servers.apps import MAX_REQUEST_BYTES, load_test_model, model_source
from tests.support.servers.grpc_server import build_engine_from_sources

Client = TestClient[Litestar]

TEXT_MODELS = ("sorter", "tagger", "continuer")
MODELS = ("classifier", "detector", "teller", *TEXT_MODELS, "half_plus_two", "echo-pair", "echo-int64", "greeter")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    engine = build_engine_from_sources([model_source(name) for name in MODELS], load_test_model)
    with TestClient(create_listener_app(engine, TensorFlowServing(), MAX_REQUEST_BYTES)) as client:
        yield client


def test_too_many_images_are_rejected(client: Client) -> None:
    image = {"b64": encode_base64(encode_image(rectangle(8, 8)))}
    message = error_message(client, "/v1/models/detector:predict", {"instances": [image] * 9}, 413)
    assert "at most 8 images" in message


def test_bad_image_error_names_input_and_row(client: Client) -> None:
    image, broken = {"b64": encode_base64(encode_image(rectangle()))}, {"b64": "aGVsbG8="}
    for body in ({"instances": [image, broken]}, {"inputs": {"image": [image, broken]}}):
        assert error_message(client, "/v1/models/detector:predict", body, 400).startswith("image[1]: ")
    body = {"examples": [{"image": image}, {"image": broken}]}
    assert error_message(client, "/v1/models/classifier:classify", body, 400).startswith("image[1]: ")


def test_input_under_two_names_is_rejected(client: Client) -> None:
    image = {"b64": encode_base64(encode_image(rectangle()))}
    body = {"instances": [{"image": image, "image_bytes": image}]}
    assert error_message(client, "/v1/models/detector:predict", body, 400) == (
        "instances[0]: Expected one of 'image', got 'image_bytes'"
    )


def test_prompts_must_match_the_images(client: Client) -> None:
    image = {"b64": encode_base64(encode_image(rectangle(8, 8)))}
    path = "/v1/models/teller:predict"
    message = error_message(client, path, {"instances": [{"image": image, "prompt": "a"}, {"image": image}]}, 400)
    assert message == "instances[1]: Expected a value for the input 'prompts', got none"
    message = error_message(client, path, {"inputs": {"image": [image] * 2, "prompts": ["a"]}}, 400)
    assert message == "prompts: Expected prompts for each of the 2 images, got 1 rows of them"
    message = error_message(client, path, {"inputs": {"image": image, "prompts": [[["a"]]]}}, 400)
    assert message == "prompts: Expected texts, or a list of texts for each image"
    message = error_message(client, path, {"inputs": {"image": [image], "prompts": [{"b64": "/w=="}]}}, 400)
    assert message == "prompts[0]: Expected text in UTF-8, got other bytes"
    message = error_message(client, path, {"instances": [{"image": [image, image]}]}, 400)
    assert message == "image: Expected one image or text in each of 1 rows, got 2"
    pixels = [[[[9, 9, 9]] * 4] * 3] * 2
    answer = client.post(path, json={"inputs": {"image": pixels, "prompts": ["a", "b"]}})
    assert answer.json()["outputs"]["answers"] == [["4x3"], ["4x3"]]
    single = client.post(path, json={"inputs": {"image": pixels[0], "prompts": "a"}})
    assert single.json()["outputs"]["answers"] == [["4x3"]]
    default = client.post(path, json={"instances": [image]})
    assert default.json()["predictions"][0]["num_prompts"] == 1


@pytest.mark.parametrize("prompts", ["prompt", "prompts", "question", "text"])
@pytest.mark.parametrize("image", ["image", "image_bytes", "data"])
def test_inputs_are_accepted_under_alternative_names(client: Client, image: str, prompts: str) -> None:
    row = {image: {"b64": encode_base64(encode_image(rectangle(8, 4)))}, prompts: "How large?"}
    rows = client.post("/v1/models/teller:predict", json={"instances": [row]})
    assert rows.json()["predictions"] == [{"num_prompts": 1, "prompts": ["How large?"], "answers": ["8x4"]}]
    columns = client.post("/v1/models/teller:predict", json={"inputs": {name: [row[name]] for name in row}})
    assert columns.json()["outputs"]["answers"] == [["8x4"]]


def test_two_alternative_names_of_one_input_are_rejected(client: Client) -> None:
    image = {"b64": encode_base64(encode_image(rectangle(8, 8)))}
    row = {"image_bytes": image, "data": image}
    message = error_message(client, "/v1/models/detector:predict", {"instances": [row]}, 400)
    assert message == "instances[0]: Expected a value for the input 'image', got none"
    message = error_message(client, "/v1/models/detector:predict", {"inputs": row}, 400)
    assert message == "inputs: Expected a value for the input 'image', got none"


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_each_row_must_have_one_text(client: Client, model: str) -> None:
    path = f"/v1/models/{model}:predict"
    for body in ({"instances": [["red", "blue"]] * 2}, {"inputs": [["red", "blue"]] * 2}):
        message = error_message(client, path, body, 400)
        assert message == "args: Expected one image or text in each of 2 rows, got 4"
    assert error_message(client, path, {"inputs": []}, 400) == "args: Expected at least one text, got none"
    assert error_message(client, path, {"instances": [{"b64": "/w=="}]}, 400) == (
        "args[0]: Expected text in UTF-8, got other bytes"
    )
    message = error_message(client, path, {"instances": [{"text": "a", "prompt": "b"}]}, 400)
    assert "Expected a value for the input 'args', got none" in message
    answer = client.post(path, json={"instances": [["red"], ["blue"]]})
    assert len(answer.json()["predictions"]) == 2


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
    predictions = client.post("/v1/models/detector:predict", json={"instances": [dark, bright, bright]}).json()[
        "predictions"
    ]
    assert [prediction["num_detections"] for prediction in predictions] == [0, 1, 1]
    assert predictions[2]["boxes"] == [[1.0, 0.0, 3.0, 1.0]]
    normalized = [[[0.0, 1, 1.0], [0.0, 0.0, 0.0]]]
    normalized_predictions = client.post("/v1/models/detector:predict", json={"instances": normalized}).json()[
        "predictions"
    ]
    assert normalized_predictions == predictions[2:]


ATTACKS: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("nul", b"\x00"),
    ("truncated", b'{"instances": [{"b64": "'),
    ("number", b"1"),
    ("deep list", b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ("deep object", b'{"instances": [' + b'{"x":' * 100_000 + b"1" + b"}" * 100_000 + b"]}"),
    ("deep and legal", b'{"instances": ' + b"[" * 400 + b"]" * 400 + b"}"),
    ("huge integer", b'{"instances": [' + b"9" * 10_000 + b"]}"),
    ("huge exponent", b'{"instances": [1e99999999]}'),
    ("surrogate", b'{"instances": ["\\ud800"]}'),
    ("no utf-8", b'{"instances": ["\xff\xfe"]}'),
    ("objects", b'{"instances": [{}, {}]}'),
    ("mixed", b'{"instances": [1, "a", null, true, {"b64": "YQ=="}, [], {}]}'),
    ("inputs null", b'{"inputs": null}'),
    ("inputs empty", b'{"inputs": {}}'),
    ("examples odd", b'{"examples": [{"": [[]]}]}'),
    ("examples empty feature", b'{"examples": [{"x": [], "image": [], "text": [], "numbers": []}]}'),
    ("examples huge integer", b'{"examples": [{"x": ' + b"9" * 400 + b"}]}"),
    ("signature odd", b'{"signature_name": "\\u0000", "instances": [1], "examples": [{}]}'),
    ("image huge", b'{"instances": [{"b64": "iVBORw0KGgoAAAANSUhEUgB//////38IAgAAAA=="}]}'),
]


@pytest.mark.parametrize(("name", "body"), ATTACKS, ids=[name for name, _ in ATTACKS])
def test_hostile_body_returns_a_client_error(client: Client, name: str, body: bytes) -> None:
    for model in ("half_plus_two", "detector", "classifier", "echo-pair", "greeter", "echo-int64", "sorter", "tagger"):
        for verb in ("predict", "classify", "regress"):
            answer = client.post(f"/v1/models/{model}:{verb}", content=body)
            assert 400 <= answer.status_code < 500, (name, model, verb, answer.text)
            assert answer.json()["error"]
