"""chariot-v2: one object, lines of objects, or the bare image."""

import json
from typing import Any

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.protocols.chariot_v2.codec import JSON, JSON_LINES, decode, encode, localised
from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceOutput, InferenceResponse
from tests.support.pictures import base64_text, encoded, rectangle

Client = TestClient[Litestar]
IMAGE = encoded(rectangle())
PICTURE = base64_text(IMAGE)
FOUND = {"label": "red", "score": 0.9, "xmin": 10.0, "ymin": 8.0, "xmax": 30.0, "ymax": 40.0}
BORDER = {"label": "border", "score": 0.3, "xmin": 0.0, "ymin": 0.0, "xmax": 5.0, "ymax": 48.0}
EVERYTHING = {"score_threshold": 0.1}


def post(client: Client, content: bytes, content_type: str | None = JSON, **headers: str) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if content_type is not None:
        given["content-type"] = content_type
    return client.post("/infer", content=content, headers=given)


def one(**parameters: Any) -> dict[str, Any]:
    return {"input": PICTURE, "parameters": parameters} if parameters else {"input": PICTURE}


def lines(*objects: object) -> bytes:
    return b"\n".join(json.dumps(each).encode() for each in objects)


def failed(response: httpx.Response, status: int = 400) -> str:
    """The sentence of an error, which is said under both names."""
    assert response.status_code == status
    assert response.headers["content-type"] == JSON
    body = response.json()
    assert list(body) == ["error", "detail"]
    assert body["error"] == body["detail"]
    return body["error"]


@pytest.mark.parametrize("content_type", [JSON, None, "application/json; charset=utf-8", "Application/JSON"])
def test_one_object_is_answered_with_one_object(lean_client: Client, content_type: str | None) -> None:
    response = post(lean_client, json.dumps(one()).encode(), content_type)
    assert response.status_code == 200
    assert response.headers["content-type"] == JSON
    assert response.json() == {"output": [FOUND]}


def test_parameters_are_heeded(lean_client: Client) -> None:
    assert post(lean_client, json.dumps(one(**EVERYTHING)).encode()).json() == {"output": [FOUND, BORDER]}
    assert post(lean_client, json.dumps(one(score_threshold=0.95)).encode()).json() == {"output": []}
    assert post(lean_client, json.dumps({**one(), "parameters": None}).encode()).json() == {"output": [FOUND]}


def test_lines_are_answered_with_lines_in_their_order(lean_client: Client) -> None:
    response = post(lean_client, lines(one(), one(**EVERYTHING), one(score_threshold=0.95)), JSON_LINES)
    assert response.headers["content-type"] == JSON_LINES
    answers = [json.loads(line) for line in response.text.splitlines()]
    assert answers == [{"output": [FOUND]}, {"output": [FOUND, BORDER]}, {"output": []}]


def test_one_line_is_answered_with_plain_json(lean_client: Client) -> None:
    response = post(lean_client, lines(one()) + b"\n", JSON_LINES)
    assert response.headers["content-type"] == JSON
    assert response.json() == {"output": [FOUND]}


def test_blank_lines_and_carriage_returns_do_not_count(lean_client: Client) -> None:
    body = b"\n \r\n" + lines(one(), one()).replace(b"\n", b"\r\n\r\n") + b"\r\n\n"
    assert len(post(lean_client, body, JSON_LINES).text.splitlines()) == 2


@pytest.mark.parametrize("content_type", ["image/png", "image/jpeg", "application/octet-stream"])
def test_any_other_content_type_is_the_image_itself(lean_client: Client, content_type: str) -> None:
    assert post(lean_client, IMAGE, content_type).json() == {"output": [FOUND]}


def test_parameters_of_a_bare_image_ride_in_a_header(lean_client: Client) -> None:
    header = json.dumps(EVERYTHING)
    response = post(lean_client, IMAGE, "image/png", chariot_inference_parameters=header)
    assert response.json() == {"output": [FOUND, BORDER]}


def test_metadata_comes_back_unchanged_beside_its_output(lean_client: Client) -> None:
    metadata = '[ {"key":"a",  "type":"int","value":"1"} ]'
    single = post(lean_client, json.dumps(one(metadata=metadata, top_k=1)).encode())
    assert single.json() == {"output": [FOUND], "parameters": {"metadata": metadata}}
    several = post(lean_client, lines(one(), one(metadata=metadata)), JSON_LINES).text.splitlines()
    assert [json.loads(line).get("parameters") for line in several] == [None, {"metadata": metadata}]
    header = '{"metadata":{"a" : 1.10}}'
    bare = post(lean_client, IMAGE, "image/png", chariot_inference_parameters=header)
    assert bare.text.endswith('"parameters":{"metadata":{"a" : 1.10}}}')


def test_ids_are_returned_as_headers(lean_client: Client) -> None:
    response = post(lean_client, IMAGE, "image/png", x_request_id="r", chariot_inference_base_id="b")
    assert (response.headers["x-request-id"], response.headers["chariot-inference-base-id"]) == ("r", "b")


@pytest.mark.parametrize("path", ["/infer/", "/v2/models/m-any/infer", "/v2/models/m-any/infer/"])
def test_every_path_of_chariot_is_answered(lean_client: Client, path: str) -> None:
    assert lean_client.post(path, json=one()).json() == {"output": [FOUND]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty body"), (b"{", "not valid JSON"), (b"[]", "Expected `object`"),
        (b"{}", "missing required field `input`"),
        (b'{"input": 5}', "input: Expected `str`"), (b'{"input": ["aa"]}', "input: "),
        (b'{"input": "!!"}', "input: Expected base64"),
        (b'{"input": "aGVsbG8="}', "input: Expected an encoded image"), (b'{"input": ""}', "input: "),
        (b'{"input": "", "parameters": []}', "parameters: Expected `object"),
        (b'{"input": NaN}', "input: Expected a finite"),
    ],
)  # fmt: skip
def test_bad_objects_name_their_field(lean_client: Client, content: bytes, said: str) -> None:
    sentence = failed(post(lean_client, content))
    assert said in sentence
    assert "inputs[" not in sentence, "the neutral name of the field means nothing to the sender"
    assert sentence.startswith(said.partition(":")[0]) or ":" not in said


@pytest.mark.parametrize("value", ["0.5", True, 1.5, [], -1])
def test_wrong_parameters_name_their_field(lean_client: Client, value: object) -> None:
    sentence = failed(post(lean_client, json.dumps(one(score_threshold=value)).encode()))
    assert sentence.startswith("parameters.score_threshold: ")


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"input": "!!"}, "object 2: input: Expected base64"), ({"input": 5}, "object 2: input: "),
        ([], "object 2: Expected `object`"),
        ({}, "object 2: "), (one(top_k=0), "object 2: parameters.top_k: "),
    ],
)  # fmt: skip
def test_bad_lines_are_counted_from_1(lean_client: Client, second: object, said: str) -> None:
    assert failed(post(lean_client, lines(one(), second, one()), JSON_LINES)).startswith(said)


def test_no_lines_and_too_many_lines(lean_client: Client) -> None:
    assert "at least one" in failed(post(lean_client, b"\n\n", JSON_LINES))
    assert "at most 64" in failed(post(lean_client, lines(*[one()] * 65), JSON_LINES), 413)


@pytest.mark.parametrize("header", ["", "{", "5", "[]", "null", '{"top_k": NaN}', '{"a": "\\ud800"}', "é" * 10])
def test_a_bad_header_is_a_bad_request_that_names_it(lean_client: Client, header: str) -> None:
    given = {"content-type": "image/png", "chariot-inference-parameters": header.encode("latin-1")}
    headers = [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in given.items()]
    response = lean_client.post("/infer", content=IMAGE, headers=headers)
    assert failed(response).startswith("chariot-inference-parameters")


@pytest.mark.parametrize(("content", "said"), [(b"", "empty body"), (b"hello", "body: Expected an encoded image")])
def test_a_bare_body_that_is_no_image(lean_client: Client, content: bytes, said: str) -> None:
    assert said in failed(post(lean_client, content, "image/png"))


def arguments(media_type: str = JSON, header: str | None = None) -> dict[str, Any]:
    return {
        "media_type": media_type, "parameters_header": header, "model_name": "m", "model_version": "2",
        "request_id": "r",
    }  # fmt: skip


def test_the_three_forms_decode_to_the_same_request() -> None:
    def told(request: InferenceRequest) -> object:
        (tensor,) = request.inputs
        (element,) = getattr(tensor, "elements", [None])
        return (
            request.id,
            request.model_name,
            request.model_version,
            tensor.name,
            tensor.shape,
            tensor.parameters,
            element.binary(),
        )

    single = decode(json.dumps(one(top_k=3)).encode(), **arguments())
    line = decode(lines(one(top_k=3)), **arguments(JSON_LINES))
    bare = decode(IMAGE, **arguments("image/png", '{"top_k": 3}'))
    assert told(single) == told(line) == told(bare) == ("r", "m", "2", "input", (1,), {"top_k": 3}, IMAGE)


def test_outputs_are_lines_unless_there_is_just_one() -> None:
    def response(count: int) -> InferenceResponse:
        outputs = [InferenceOutput(name="input", predictions=[]) for _ in range(count)]
        return InferenceResponse(id="r", model_name="m", model_version="1", outputs=outputs)

    assert encode(response(1)) == (b'{"output":[]}', JSON)
    assert encode(response(2)) == (b'{"output":[]}\n{"output":[]}\n', JSON_LINES)


@pytest.mark.parametrize(
    ("path", "media_type", "expected"),
    [
        ("inputs[0].data[0]", JSON, "input"), ("inputs[0].data[0]", "", "input"),
        ("inputs[0].data[0]", JSON_LINES, "object 1: input"),
        ("inputs[11].parameters.top_k", JSON_LINES, "object 12: parameters.top_k"),
        ("inputs[0].data[0]", "image/png", "body"),
        ("inputs[4]", JSON_LINES, "object 5"), ("inputs[0]", JSON, ""), ("", JSON, ""), ("inputs", JSON, "inputs"),
        ("inputs[0].parameters.top_k", JSON, "parameters.top_k"),
    ],
)  # fmt: skip
def test_paths_are_told_in_the_senders_terms(path: str, media_type: str, expected: str) -> None:
    moved = localised(InferenceError(ErrorKind.TOO_LARGE, "Too much", path), media_type)
    assert (moved.kind, moved.message, moved.path) == (ErrorKind.TOO_LARGE, "Too much", expected)
    assert localised(invalid("x", path), media_type).kind is ErrorKind.INVALID_REQUEST
