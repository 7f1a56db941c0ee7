"""Test answers in JSON and calls of functions, with a model of random weights that writes any bytes."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.settings.model import ModelSource
from app.plugins.transformers.runtimes import TRANSFORMERS
from tests.plugins.openai.test_chat import CHAT, parse_events, text_of
from tests.support.models.tiny_language import talker
from tests.support.servers.apps import app_with_sources

pytestmark = pytest.mark.slow

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Paris"]}, "unit": {"$ref": "#/$defs/Unit"}},
    "required": ["city", "unit"],
    "additionalProperties": False,
    "$defs": {"Unit": {"enum": ["C", "F"]}},
}
UNSUPPORTED = {"type": "array", "maxItems": 0, "uniqueItems": True}
FOUND = [f'{{"city": "{city}", "unit": "{unit}"}}' for city in ("Rome", "Paris") for unit in "CF"]


def function(name: str, parameters: object = None, **members: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **members}}


def schema(value: object, **members: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "any", "schema": value, **members}}


TOOLS = [function("weather", WEATHER, description="The weather", strict=True), function("now")]
NAMED = {"type": "function", "function": {"name": "weather"}}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient[Litestar]]:
    source = ModelSource(name="talker", version="1", folder=talker(tmp_path_factory.mktemp("talker")))
    with TestClient(app_with_sources([source], TRANSFORMERS.load, "openai")) as client:
        yield client


def body(**members: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": "How is the weather?"}]
    return {"messages": turns, "max_tokens": 90, "temperature": 1.0, "seed": 3, **members}


def choice_of(client: TestClient[Litestar], **members: Any) -> dict[str, Any]:
    response = client.post(CHAT, json=body(**members))
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"response_format": schema(WEATHER, strict=True)}, FOUND),
        ({"response_format": schema(UNSUPPORTED)}, ["[]"]),
        # With functions that the model may call, another answer follows the schema.
        ({"response_format": schema({"const": 7}), "tools": [function("f", {"const": 1})]}, ["7", None]),
    ],
    ids=str,
)
def test_answer_follows_the_response_format(client: TestClient[Litestar], members: Any, expected: list[str]) -> None:
    assert choice_of(client, **members)["message"]["content"] in expected
    streamed = parse_events(client.post(CHAT, json=body(stream=True, **members)).content)
    assert text_of(streamed) in [text or "" for text in expected]


@pytest.mark.parametrize(
    ("members", "names"),
    [
        ({"tool_choice": NAMED}, ["weather"]),
        ({"tool_choice": "required"}, ["now", "weather"]),
        ({"tool_choice": "required", "parallel_tool_calls": False}, ["now", "weather"]),
        ({"tool_choice": "required", "tools": [function("f", UNSUPPORTED)]}, ["f"]),
    ],
    ids=str,
)
def test_required_function_is_called_with_valid_arguments(
    client: TestClient[Litestar], members: Any, names: list[str]
) -> None:
    members = {"tools": TOOLS, "max_tokens": 600, **members}
    choice = choice_of(client, **members)
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    streamed = parse_events(client.post(CHAT, json=body(stream=True, **members)).content)
    (delta,) = [part["choices"][0]["delta"] for part in streamed if "tool_calls" in part["choices"][0]["delta"]]
    assert streamed[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert [call["index"] for call in delta["tool_calls"]] == list(range(len(delta["tool_calls"])))
    for whole, part in zip(choice["message"]["tool_calls"], delta["tool_calls"], strict=True):
        assert (whole["type"], whole["function"]) == ("function", part["function"])
        assert whole["function"]["name"] in names
        assert (
            whole["function"]["arguments"] in {"weather": FOUND, "now": ["{}"], "f": ["[]"]}[whole["function"]["name"]]
        )


def test_any_object_and_an_answer_that_ends_early(client: TestClient[Litestar]) -> None:
    choice = choice_of(client, response_format={"type": "json_object"})
    assert isinstance(json.loads(choice["message"]["content"]), dict)
    short = choice_of(client, tools=TOOLS, tool_choice=NAMED, max_tokens=9)
    assert (short["finish_reason"], short["message"]["content"]) == ("length", '{"name": ')


def test_model_chooses_between_a_text_and_a_call(client: TestClient[Litestar]) -> None:
    starts: set[bool] = set()
    for seed in range(30):
        choice = choice_of(client, tools=TOOLS, seed=seed, temperature=2.0, max_tokens=12)
        starts.add((choice["message"]["content"] or "{")[0] in "{[<")
        if len(starts) == 2:
            break
    assert starts == {True, False}
    text = choice_of(client, tools=TOOLS, tool_choice="none")["message"]["content"]
    assert text == choice_of(client)["message"]["content"]


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"response_format": schema(UNSUPPORTED, strict=True)}, "response_format"),
        ({"tools": [function("f", UNSUPPORTED, strict=True)]}, "tools"),
    ],
    ids=str,
)
def test_strict_schema_that_cannot_be_followed_is_rejected_with_its_member(
    client: TestClient[Litestar], members: Any, param: str
) -> None:
    for stream in (False, True):
        response = client.post(CHAT, json=body(stream=stream, **members))
        assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text


def test_results_of_calls_become_a_message_of_the_user(client: TestClient[Litestar]) -> None:
    turns = [*body()["messages"], {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    results = [{"role": "tool", "tool_call_id": "1", "content": text} for text in ("sun", "rain")]
    said = '{"name": "weather", "arguments": {"city": "Rome"}}'
    user = "".join(f"The call 1 returned:\n{text}" for text in ("sun", "rain"))
    written = [*body()["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": user}]
    assert choice_of(client, messages=turns + results) == choice_of(client, messages=written)
