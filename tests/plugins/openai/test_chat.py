"""Test OpenAI's API: answers, streams, tokens, errors and what the engine sees of a request."""

import json
from collections.abc import Generator, Sequence
from typing import Any

import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from metadata.request import MetadataEntry
from tasks.image_text_to_text import Answers, Grounding, PromptedImage
from tasks.inference.error import ErrorKind
from tasks.object_detection import DetectedObject
from tasks.task import TextChunk
from tests.support.data.chariot import IMAGE
from tests.support.data.images import encode_base64
from tests.support.models.scripted_model import EventRecorder, ScriptedModel, scripted_engine
from tests.support.servers.apps import app_of_protocol, app_with_models
from tests.support.servers.server_process import ROOT

SHAPE_IMAGE = encode_base64((ROOT / "fixtures" / "images" / "shape.jpg").read_bytes())
CHAT = "/openai/v1/chat/completions"
IMAGE_TOKENS = 49
Parts = list[dict[str, Any]]


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image_part(image: str = SHAPE_IMAGE) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{image}"}}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def question(text: str = "What is in the picture?", **members: Any) -> dict[str, Any]:
    return {"messages": [user(text_part(text), image_part())], **members}


def parse_events(body: bytes) -> Parts:
    """Return the parts of a stream, which must end with [DONE]."""
    *blocks, done, rest = body.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(block.removeprefix(b"data: ")) for block in blocks]


def text_of(parts: Parts) -> str:
    return "".join(part["choices"][0]["delta"].get("content", "") for part in parts if part["choices"])


@pytest.fixture(scope="module")
def vlm() -> Generator[TestClient[Litestar]]:
    with TestClient(app_with_models(("vlm",), "openai")) as client:
        yield client


@pytest.fixture(scope="module")
def several() -> Generator[TestClient[Litestar]]:
    with TestClient(app_with_models(("teller", "continuer", "detector"), "openai")) as client:
        yield client


def complete(client: TestClient[Litestar], body: dict[str, Any]) -> dict[str, Any]:
    response = client.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def rejection(client: TestClient[Litestar], body: Any) -> dict[str, Any]:
    response = client.post(CHAT, json=body)
    assert response.status_code == 400, response.text
    return response.json()["error"]


@pytest.mark.parametrize("members", [{}, {"temperature": 1.5, "top_p": 0.9, "seed": -7}, {"max_tokens": 2}], ids=str)
def test_streamed_answer_equals_the_complete_one(vlm: TestClient[Litestar], members: dict[str, Any]) -> None:
    answer = complete(vlm, question(**members))
    response = vlm.post(CHAT, json=question(stream=True, stream_options={"include_usage": True}, **members))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    first, *deltas, last, usage = parse_events(response.content)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(deltas) == answer["choices"][0]["message"]["content"]
    finish = answer["choices"][0]["finish_reason"]
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, finish)
    assert (usage["choices"], usage["usage"]) == ([], answer["usage"])
    assert len({(part["id"], part["created"], part["model"]) for part in (first, *deltas, last, usage)}) == 1
    assert {part["object"] for part in (first, *deltas, last, usage)} == {"chat.completion.chunk"}


def test_usage_counts_image_tokens_and_the_end_token(vlm: TestClient[Litestar]) -> None:
    full = complete(vlm, question())
    assert full["choices"][0]["finish_reason"] == "stop"
    usage = full["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    shortened = complete(vlm, question(max_tokens=usage["completion_tokens"] - 1))
    assert shortened["choices"][0]["finish_reason"] == "length"
    assert shortened["choices"][0]["message"] == full["choices"][0]["message"]
    assert shortened["usage"]["completion_tokens"] == usage["completion_tokens"] - 1
    two = complete(vlm, {"messages": [user(text_part("What is in the picture?"), image_part(), image_part())]})
    assert two["usage"]["prompt_tokens"] - usage["prompt_tokens"] == IMAGE_TOKENS


@pytest.mark.parametrize("texts", [[""], [" \n"], []])
def test_image_without_a_question_gets_the_default_question(vlm: TestClient[Litestar], texts: list[str]) -> None:
    for before in ([], [{"role": "system", "content": "Be short."}]):
        answer = complete(vlm, {"messages": [*before, user(*map(text_part, texts), image_part())]})
        asked = [*before, user(image_part(), text_part("What is in the picture?"))]
        assert answer["choices"][0]["message"] == complete(vlm, {"messages": asked})["choices"][0]["message"]
        assert answer["usage"] == complete(vlm, {"messages": asked})["usage"]


def test_conversation_with_several_turns_is_answered_in_its_order(vlm: TestClient[Litestar]) -> None:
    reply = {"role": "assistant", "content": "a shape"}
    turns = [*question()["messages"], reply, user(text_part("What color is the shape?"))]
    answer = complete(vlm, {"messages": turns})
    longer = complete(vlm, {"messages": [{"role": "system", "content": "Be short."}, *turns]})
    assert longer["usage"]["prompt_tokens"] > answer["usage"]["prompt_tokens"] > IMAGE_TOKENS


def test_stop_sequence_is_cut_across_tokens(vlm: TestClient[Litestar]) -> None:
    text = complete(vlm, question())["choices"][0]["message"]["content"]
    stop = text[3:8]
    answer = complete(vlm, question(stop=stop))
    assert answer["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    streamed = parse_events(vlm.post(CHAT, json=question(stop=[stop], stream=True)).content)
    assert text_of(streamed) == text[: text.index(stop)]


@pytest.mark.parametrize("stream", [False, True])
def test_image_model_answers_a_conversation_without_images(vlm: TestClient[Litestar], stream: bool) -> None:
    body = {"messages": [user(text_part("What is a shape?"))], "max_tokens": 5, "stream": stream}
    response = vlm.post(CHAT, json={**body, "stream_options": {"include_usage": True}})
    assert response.status_code == 200
    answer = parse_events(response.content)[-1] if stream else response.json()
    assert 0 < answer["usage"]["prompt_tokens"] < IMAGE_TOKENS


def test_both_model_lists_have_the_models_that_answer_with_text(several: TestClient[Litestar]) -> None:
    listed = several.get("/openai/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["continuer", "teller"]
    assert set(listed["data"][0]) == {"id", "object", "created", "owned_by"}
    assert several.get("/v1/models").json() == {"models": ["continuer", "detector", "teller"], **listed}
    assert several.get("/openai/v1/models/teller").json() in listed["data"]
    for name, status, code in (("missing", 404, "model_not_found"), ("detector", 400, "unsupported_model")):
        response = several.get(f"/openai/v1/models/{name}")
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_streamed_request_is_rejected_as_a_whole(vlm: TestClient[Litestar]) -> None:
    # The text would stand for an image.
    body = {"messages": [user(text_part("<image>"), image_part())]}
    error = rejection(vlm, body)
    assert (error["type"], error["param"]) == ("invalid_request_error", "messages")
    assert error == rejection(vlm, {**body, "stream": True})


def speaker(image: str = IMAGE, **members: Any) -> dict[str, Any]:
    return {"model": "speaker", "messages": [user(image_part(image), text_part("what?"))], **members}


def test_error_after_the_first_chunk_is_an_event() -> None:
    engine = scripted_engine(ScriptedModel("a", RuntimeError("broken")))
    with TestClient(app_of_protocol(engine, "openai")) as client:
        parts = parse_events(client.post(CHAT, json=speaker(stream=True)).content)
        assert client.post(CHAT, json=speaker()).json()["error"]["type"] == "server_error"
    assert parts[-1]["error"]["type"] == "server_error"
    assert "broken" in parts[-1]["error"]["message"]


class PointingModel(ScriptedModel):
    """Locates a box in each answer."""

    found = Grounding([DetectedObject("box", 0.9, 1, 2, 3, 4)])

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        return [msgspec.structs.replace(answers, grounding=[self.found]) for answers in super().__call__(inputs)]

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextChunk]:
        for chunk in super().stream(inputs):
            yield msgspec.structs.replace(chunk, grounding=self.found if chunk.final else None)


def test_message_has_what_its_answer_locates() -> None:
    box = {"label": "box", "score": 0.9, "xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}
    with TestClient(app_of_protocol(scripted_engine(PointingModel("a", " box")), "openai")) as client:
        message = complete(client, speaker())["choices"][0]["message"]
        assert (message["content"], message["grounding"]) == ("a box", {"objects": [box], "note": ""})
        events = parse_events(client.post(CHAT, json=speaker(stream=True)).content)
    assert [event["choices"][0]["delta"] for event in events][-1] == {"grounding": message["grounding"]}


def test_observers_see_the_request_with_its_metadata() -> None:
    recorder = EventRecorder()
    engine = scripted_engine(ScriptedModel("a", " box"), recorder)
    metadata = {"camera": "north", "row": 7, "dark": True}
    with TestClient(app_of_protocol(engine, "openai")) as client:
        headers = {"x-request-id": "mine"}
        response = client.post(CHAT, json=speaker(metadata=metadata), headers=headers)
        assert (response.json()["id"], response.headers["x-request-id"]) == ("chatcmpl-mine", "mine")
        rejected = client.post(CHAT, json={**speaker(), "model": "missing"})
    event, rejected_event = recorder.events
    assert (event.protocol, event.model_name, event.request_id) == ("openai", "speaker", "mine")
    (read,) = event.metadata.of()
    assert list(read.entries) == [
        MetadataEntry("camera", "str", "north"),
        MetadataEntry("row", "int", 7),
        MetadataEntry("dark", "str", "true"),
    ]
    assert event.result is not None
    (sample,) = event.result.samples
    assert [record.answer for record in sample.prediction.records()] == ["a box"]  # type: ignore[attr-defined]
    assert rejected.status_code == 404
    assert (rejected_event.outcome, rejected_event.model_name) == (ErrorKind.MODEL_NOT_FOUND, "missing")
