"""What comes in the place of images, texts and prompts, and what is sent to break the server."""

from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.protocols.tensorflow_serving.routes import TensorFlowServing
from app.server.asgi import create_listener_app
from tests.app.protocols.test_tensorflow_serving import refused
from tests.support.grpc_server import over
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import MAX_REQUEST_BYTES, load_any, source

Client = TestClient[Litestar]

TEXTS = ("sorter", "tagger", "continuer")
MODELS = ("classifier", "detector", "teller", *TEXTS, "half_plus_two", "echo-pair", "echo-int64", "greeter")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    engine = over([source(name) for name in MODELS], load_any)
    with TestClient(create_listener_app(engine, TensorFlowServing(), MAX_REQUEST_BYTES)) as client:
        yield client


def test_more_images_than_may_be_are_refused(client: Client) -> None:
    picture = {"b64": base64_text(encoded(rectangle(8, 8)))}
    message = refused(client, "/v1/models/detector:predict", {"instances": [picture] * 9}, 413)
    assert "at most 8 images" in message


def test_an_error_names_the_input_and_the_row(client: Client) -> None:
    picture, broken = {"b64": base64_text(encoded(rectangle()))}, {"b64": "aGVsbG8="}
    for body in ({"instances": [picture, broken]}, {"inputs": {"image": [picture, broken]}}):
        assert refused(client, "/v1/models/detector:predict", body, 400).startswith("image[1]: ")
    body = {"examples": [{"image": picture}, {"image": broken}]}
    assert refused(client, "/v1/models/classifier:classify", body, 400).startswith("image[1]: ")


def test_an_input_has_one_name_at_a_time(client: Client) -> None:
    picture = {"b64": base64_text(encoded(rectangle()))}
    body = {"instances": [{"image": picture, "image_bytes": picture}]}
    assert refused(client, "/v1/models/detector:predict", body, 400) == (
        "Failed to process element: 0 key: image_bytes of 'instances' list. Error: INVALID_ARGUMENT: JSON object: does "
        "not have named input: image_bytes"
    )


def test_prompts_stand_beside_every_picture_or_none(client: Client) -> None:
    picture = {"b64": base64_text(encoded(rectangle(8, 8)))}
    path = "/v1/models/teller:predict"
    message = refused(client, path, {"instances": [{"image": picture, "prompt": "a"}, {"image": picture}]}, 400)
    assert message == "instances: Expected every instance to have the same inputs"
    message = refused(client, path, {"inputs": {"image": [picture] * 2, "prompts": ["a"]}}, 400)
    assert message == "prompts: Expected prompts for each of the 2 images, got 1 rows of them"
    message = refused(client, path, {"inputs": {"image": picture, "prompts": [[["a"]]]}}, 400)
    assert message == "prompts: Expected texts, or a list of texts for each image"
    message = refused(client, path, {"inputs": {"image": [picture], "prompts": [{"b64": "/w=="}]}}, 400)
    assert message == "prompts[0]: Expected text in UTF-8, got other bytes"
    message = refused(client, path, {"instances": [{"image": [picture, picture]}]}, 400)
    assert message == "image: Expected one image or text in each of 1 rows, got 2"
    pixels = [[[[9, 9, 9]] * 4] * 3] * 2
    answer = client.post(path, json={"inputs": {"image": pixels, "prompts": ["a", "b"]}})
    assert answer.json()["outputs"]["answers"] == [["4x3"], ["4x3"]]
    one = client.post(path, json={"inputs": {"image": pixels[0], "prompts": "a"}})
    assert one.json()["outputs"]["answers"] == [["4x3"]]
    default = client.post(path, json={"instances": [picture]})
    assert default.json()["predictions"][0]["num_prompts"] == 1


@pytest.mark.parametrize("prompts", ["prompt", "prompts", "question", "text"])
@pytest.mark.parametrize("image", ["image", "image_bytes", "data"])
def test_inputs_have_other_names(client: Client, image: str, prompts: str) -> None:
    row = {image: {"b64": base64_text(encoded(rectangle(8, 4)))}, prompts: "How large?"}
    rows = client.post("/v1/models/teller:predict", json={"instances": [row]})
    assert rows.json()["predictions"] == [{"num_prompts": 1, "prompts": ["How large?"], "answers": ["8x4"]}]
    columns = client.post("/v1/models/teller:predict", json={"inputs": {name: [row[name]] for name in row}})
    assert columns.json()["outputs"]["answers"] == [["8x4"]]


def test_of_two_other_names_neither_is_taken(client: Client) -> None:
    picture = {"b64": base64_text(encoded(rectangle(8, 8)))}
    row = {"image_bytes": picture, "data": picture}
    message = refused(client, "/v1/models/detector:predict", {"instances": [row]}, 400)
    assert message.endswith("JSON object: does not have named input: image_bytes")
    message = refused(client, "/v1/models/detector:predict", {"inputs": row}, 400)
    assert message == "Missing named input: image in 'inputs' object."


@pytest.mark.parametrize("model", TEXTS)
def test_there_is_one_text_in_each_row(client: Client, model: str) -> None:
    path = f"/v1/models/{model}:predict"
    for body in ({"instances": [["red", "blue"]] * 2}, {"inputs": [["red", "blue"]] * 2}):
        message = refused(client, path, body, 400)
        assert message == "args: Expected one image or text in each of 2 rows, got 4"
    assert refused(client, path, {"inputs": []}, 400) == "args: Expected at least one text, got none"
    assert refused(client, path, {"instances": [{"b64": "/w=="}]}, 400) == (
        "args[0]: Expected text in UTF-8, got other bytes"
    )
    message = refused(client, path, {"instances": [{"text": "a", "prompt": "b"}]}, 400)
    assert "does not have named input: text" in message
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
def test_what_is_quoted_is_never_much(client: Client, verb: str, body: object) -> None:
    assert len(refused(client, f"/v1/models/half_plus_two:{verb}", body, 400)) < 3100


def test_pictures_of_one_request_are_padded_to_one_tensor(client: Client) -> None:
    empty, found = ({"b64": base64_text(encoded(rectangle(colour=colour)))} for colour in ((0, 0, 0), (255, 0, 0)))
    body = {"instances": [empty, found]}
    first, second = client.post("/v1/models/detector:predict", json=body).json()["predictions"]
    assert (first["num_detections"], second["num_detections"]) == (0, 1)
    assert (first["boxes"], second["boxes"]) == ([[0.0] * 4], [[10.0, 8.0, 30.0, 40.0]])
    assert (first["labels"], second["labels"]) == ([""], ["red"])


def test_grey_pixels_of_several_rows_are_several_images(client: Client) -> None:
    dark = [[0, 0, 0], [0, 0, 0]]
    bright = [[0, 255, 255], [0, 0, 0]]
    found = client.post("/v1/models/detector:predict", json={"instances": [dark, bright, bright]}).json()["predictions"]
    assert [each["num_detections"] for each in found] == [0, 1, 1]
    assert found[2]["boxes"] == [[1.0, 0.0, 3.0, 1.0]]
    fractions = [[[0.0, 1, 1.0], [0.0, 0.0, 0.0]]]
    again = client.post("/v1/models/detector:predict", json={"instances": fractions}).json()["predictions"]
    assert again == found[2:]


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
def test_nothing_that_is_sent_breaks_the_server(client: Client, name: str, body: bytes) -> None:
    for model in ("half_plus_two", "detector", "classifier", "echo-pair", "greeter", "echo-int64", "sorter", "tagger"):
        for verb in ("predict", "classify", "regress"):
            answer = client.post(f"/v1/models/{model}:{verb}", content=body)
            assert 400 <= answer.status_code < 500, (name, model, verb, answer.text)
            assert answer.json()["error"]
