"""Test Triton's generate extension: questions about an image, and texts, with complete and streamed answers."""

import json
from collections.abc import Generator, Sequence
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.protocols.status import http_status
from tasks.inference.error import ErrorKind, invalid
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder, ScriptedModel, scripted_engine
from tests.support.servers.apps import app_of_protocol, app_with_models

IMAGE = encode_base64(encode_image(rectangle()))
TEXT_MODEL = "/v2/models/continuer"
REQUEST = {"text_input": "what?", "image": IMAGE}


def parse_events(body: bytes) -> list[dict[str, Any]]:
    """Parse server-sent events and check that each has one line of data."""
    *blocks, rest = body.split(b"\n\n")
    assert rest == b""
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in blocks)
    return [json.loads(block.removeprefix(b"data: ")) for block in blocks]


def speaker(*steps: str | Exception, observers: Sequence[EventRecorder] = ()) -> TestClient[Litestar]:
    """Return a client of a fake model that generates `steps`, and of other fakes."""
    return TestClient(app_of_protocol(scripted_engine(ScriptedModel(*steps), *observers), "chariot-v2"))


@pytest.fixture(scope="module")
def client() -> Generator[TestClient[Litestar]]:
    with speaker("a", " red", " circle") as client:
        yield client


@pytest.mark.parametrize("path", ["/v2/models/speaker", "/v2/models/speaker/versions/7"])
def test_generate_returns_one_object(client: TestClient[Litestar], path: str) -> None:
    response = client.post(f"{path}/generate", json=REQUEST)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"model_name": "speaker", "model_version": "7", "text_output": "a red circle"}


def test_generate_stream_sends_one_event_per_chunk(client: TestClient[Litestar]) -> None:
    response = client.post("/v2/models/speaker/generate_stream", json={**REQUEST, "id": "mine"})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert "content-length" not in response.headers
    assert response.headers["x-request-id"]
    head = {"model_name": "speaker", "model_version": "7", "id": "mine"}
    assert parse_events(response.content) == [{**head, "text_output": text} for text in ("a", " red", " circle")]


def test_model_without_streaming_sends_one_event(client: TestClient[Litestar]) -> None:
    (event,) = parse_events(client.post("/v2/models/teller/generate_stream", json=REQUEST).content)
    assert event == {"model_name": "teller", "model_version": "7", "text_output": "64x48"}


@pytest.mark.parametrize("steps", [(), ("", "")])
def test_empty_answer_is_one_empty_event(steps: tuple[str, ...]) -> None:
    with speaker(*steps) as client:
        (event,) = parse_events(client.post("/v2/models/speaker/generate_stream", json=REQUEST).content)
    assert event["text_output"] == ""


def test_metadata_is_returned_in_the_first_event_only(client: TestClient[Litestar]) -> None:
    metadata = [{"key": "k", "type": "int", "value": "12345678901234567890.0"}]
    request = {**REQUEST, "parameters": {"metadata": metadata}}
    assert client.post("/v2/models/speaker/generate", json=request).json()["parameters"] == {"metadata": metadata}
    first, *others = parse_events(client.post("/v2/models/speaker/generate_stream", json=request).content)
    assert first["parameters"] == {"metadata": metadata}
    assert not any("parameters" in event for event in others)


@pytest.mark.parametrize(
    "image",
    [
        {"image": f"data:image/png;base64,{IMAGE}"},
        {"images": [IMAGE]},
        {"image": None, "images": [IMAGE], "id": None, "parameters": None},
    ],
)
def test_all_image_fields_are_accepted(client: TestClient[Litestar], image: dict[str, Any]) -> None:
    response = client.post("/v2/models/teller/generate", json={"text_input": "size?", **image})
    assert response.json()["text_output"] == "64x48"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"image": IMAGE}, "missing required field `text_input`"),
        ({"text_input": "what?"}, "Expected either image or images"),
        ({**REQUEST, "images": [IMAGE]}, "Expected either image or images"),
        ({"text_input": "what?", "images": [IMAGE, IMAGE]}, "images: Expected one image, got 2"),
        ({**REQUEST, "text_input": 5}, "text_input: Expected `str`, got `int`"),
        ({**REQUEST, "image": "%%%"}, "image: Expected base64"),
        ({**REQUEST, "image": ""}, "image: "),
        ({"text_input": "what?", "images": ["AAAA"]}, "images[0]: "),
        ({**REQUEST, "parameters": {"prompts": ["more"]}}, "parameters.prompts: Expected the question in text_input"),
        ({**REQUEST, "parameters": {"temperature": -1}}, "parameters.temperature: "),
        ({**REQUEST, "max_new_tokens": 0}, "max_new_tokens: "),
        ({**REQUEST, "max_new_tokens": 1, "parameters": {"max_new_tokens": 0}}, "parameters.max_new_tokens: "),
        ({**REQUEST, "parameters": 5}, "parameters: "),
    ],
)
def test_bad_body_error_names_its_field(client: TestClient[Litestar], body: Any, error: str) -> None:
    response = client.post("/v2/models/speaker/generate", json=body)
    assert response.status_code == 400
    assert client.post("/v2/models/speaker/generate_stream", json=body).json() == response.json()
    assert response.headers["content-type"] == "application/json"
    message = response.json()["error"]
    assert message.startswith(error) if ": " in error else error in message, message


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_invalid_json_is_rejected(client: TestClient[Litestar], content: bytes) -> None:
    response = client.post("/v2/models/speaker/generate_stream", content=content)
    assert response.status_code == 400
    assert response.json()["error"]


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("model", "status", "error"),
    [
        ("missing", 404, "Model 'missing' is not known"),
        ("speaker/versions/8", 404, "Model 'speaker' has no version '8'"),
        ("detector", http_status(ErrorKind.UNSUPPORTED), "Model 'detector' (OBJECT_DETECTION) does not generate text"),
    ],
)
def test_unknown_or_non_text_model_is_rejected(
    client: TestClient[Litestar], path: str, model: str, status: int, error: str
) -> None:
    response = client.post(f"/v2/models/{model}/{path}", json=REQUEST)
    assert response.status_code == status
    assert response.json()["error"].startswith(error)


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_question_that_the_model_rejects_is_named(path: str) -> None:
    with speaker(invalid("Expected a question", "inputs[0].parameters.prompts[0]")) as client:
        response = client.post(f"/v2/models/speaker/{path}", json=REQUEST)
    assert (response.status_code, response.json()) == (400, {"error": "text_input: Expected a question"})


@pytest.mark.parametrize("steps", [(), ("a", "b")])
def test_error_is_a_status_before_the_first_event_and_an_event_after(steps: tuple[str, ...]) -> None:
    with speaker(*steps, RuntimeError("a wire came off")) as client:
        response = client.post("/v2/models/speaker/generate_stream", json=REQUEST)
        complete = client.post("/v2/models/speaker/generate", json=REQUEST)
    error = {"error": "The model failed: a wire came off"}
    assert (complete.status_code, complete.json()) == (500, error)
    *text_events, last = parse_events(response.content) if steps else [response.json()]
    assert (response.status_code, last) == (200 if steps else 500, error)
    assert tuple(event["text_output"] for event in text_events) == steps


def test_streamed_requests_are_observed() -> None:
    seen = EventRecorder()
    with speaker("a", observers=[seen]) as client:
        client.post("/v2/models/speaker/generate_stream", json=REQUEST, headers={"X-Request-ID": "r1"})
        client.post("/v2/models/missing/generate", json=REQUEST, headers={"X-Request-ID": "r2"})
    assert [(event.protocol, event.request_id, event.outcome) for event in seen.events] == [
        ("kserve-v2", "r1", None),
        ("kserve-v2", "r2", ErrorKind.MODEL_NOT_FOUND),
    ]


@pytest.fixture(scope="module")
def texts() -> Generator[TestClient[Litestar]]:
    with TestClient(app_with_models(("continuer", "teller", "sorter"))) as client:
        yield client


def test_generate_continues_a_text(texts: TestClient[Litestar]) -> None:
    body = {"text_input": "Prompt here", "parameters": {"max_new_tokens": 6}, "temperature": 0.5, "id": "a"}
    response = texts.post(f"{TEXT_MODEL}/generate", json=body)
    assert response.status_code == 200
    assert response.json() == {"model_name": "continuer", "model_version": "1", "text_output": "PROMPT", "id": "a"}


def test_generate_stream_sends_text_in_events(texts: TestClient[Litestar]) -> None:
    body = {"text_input": "Prompt here", "parameters": {"max_new_tokens": 6, "return_full_text": True}}
    response = texts.post(f"{TEXT_MODEL}/generate_stream", json=body)
    events = parse_events(response.content)
    assert [event["text_output"] for event in events] == ["Prompt here", "Prompt"]


def test_parameters_override_those_at_top_level(texts: TestClient[Litestar]) -> None:
    body = {"text_input": "Prompt here", "max_new_tokens": 1, "parameters": {"max_new_tokens": 2, "stream": True}}
    assert texts.post(f"{TEXT_MODEL}/generate", json={**body, "unknown": 1}).json()["text_output"] == "Pr"


@pytest.mark.parametrize("call", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("model", "body", "status", "message"),
    [
        ("continuer", {"text_input": "a", "parameters": {"top_k": 0}}, 400, "parameters.top_k"),
        ("continuer", {"text_input": "a", "top_k": 0}, 400, "top_k"),
        ("continuer", {"text_input": "a", "max_new_tokens": 10**6}, 413, "max_new_tokens"),
        ("continuer", {"text_input": "a", "images": []}, 400, "images: Expected one image, got 0"),
        ("continuer", {"text_input": "a", "image": "YQ=="}, 400, "image: Model 'continuer' takes no images"),
        ("continuer", {"text_input": "a", "images": ["YQ=="]}, 400, "images[0]: Model 'continuer' takes no images"),
        ("sorter", {"text_input": "a"}, 400, "does not generate text"),
    ],
)
def test_invalid_request_for_text_is_rejected(
    texts: TestClient[Litestar], call: str, model: str, body: dict[str, Any], status: int, message: str
) -> None:
    response = texts.post(f"/v2/models/{model}/{call}", json=body)
    assert response.status_code == status
    assert message in response.json()["error"]
