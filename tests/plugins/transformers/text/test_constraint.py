"""Test answers that are held to a JSON Schema: they follow it, and what cannot be held is rejected with the reason."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from app.plugins.transformers.runtimes import TRANSFORMERS, VISION_LANGUAGE
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tests.plugins.transformers.text.image_text_to_text import tiny
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input, predict, request, text_input
from tests.support.models import tiny_language, tiny_readers
from tests.support.servers.server_process import ROOT

pytestmark = pytest.mark.slow

SHAPE: dict[str, Any] = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "blue"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["color", "count"],
    "additionalProperties": False,
}
SCHEMAS: tuple[dict[str, Any], ...] = (
    SHAPE,
    {"type": "array", "items": SHAPE, "minItems": 2, "maxItems": 2},
    {"anyOf": [{"$ref": "#/$defs/day"}, {"type": "null"}], "$defs": {"day": {"type": "string", "format": "date"}}},
    {"type": "string", "pattern": "^[a-z]{3}é[0-9]$"},
    {"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 99},
)
SAMPLED = {"temperature": 1.0, "seed": 5, "max_new_tokens": 99}


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Servable:
    """Return a text generator with random weights, which writes any bytes."""
    folder = tiny_language.causal_lm(tmp_path_factory.mktemp("writer"))
    return TRANSFORMERS.load(ModelSource(name="writer", version="1", folder=folder))


def answer_of(servable: Servable, tensor: Any) -> str:
    (prediction,) = predict(servable, tensor)
    return "".join(chunk.text for chunk in prediction.chunks())


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_answer_follows_its_schema_whole_and_streamed(writer: Servable, schema: dict[str, Any]) -> None:
    own = text_input("Hello", json_schema=schema if schema is SHAPE else json.dumps(schema), **SAMPLED)
    text = answer_of(writer, own)
    assert jsonschema_rs.is_valid(schema, json.loads(text)), text
    chunks = list(writer.stream(request(own), Limits()))
    assert "".join(chunk.text for chunk in chunks) == text
    assert chunks[-1].finish == "stop"


def test_answer_without_a_schema_is_no_json(writer: Servable) -> None:
    assert answer_of(writer, text_input("Hello", **{**SAMPLED, "max_new_tokens": 9}))[0] not in '{["'


def test_each_answer_of_a_request_follows_its_own_schema(writer: Servable) -> None:
    texts = [text_input("a", "b", json_schema=schema, **SAMPLED) for schema in (SHAPE, {"const": "x"})]
    found = [json.loads(record.generated_text) for one in predict(writer, *texts) for record in one.records()]
    assert [sorted(value) for value in found[:2]] == [["color", "count"]] * 2
    assert found[2:] == ["x", "x"]


def test_optional_schema_allows_a_text_or_follows_it(writer: Servable) -> None:
    drawn = {"temperature": 3.0, "max_new_tokens": 15, "json_schema": SHAPE, "json_only": False}
    texts = [answer_of(writer, text_input("Hello", seed=seed, **drawn)) for seed in range(30)]
    calls = [text.removeprefix("<tool_call>") for text in texts if text[0] in "{[<"]
    assert 0 < len(calls) < len(texts)
    assert all(text.startswith('{"color": "') for text in calls)


def test_vision_language_model_follows_a_schema(tmp_path: Path) -> None:
    model = TRANSFORMERS.load(ModelSource(name="m", version="1", folder=tiny_readers.florence2(tmp_path)))
    assert json.loads(answer_of(model, file_input(encode_image(rectangle()), json_schema=SHAPE, **SAMPLED)))


def test_onnx_model_answers_with_the_values_of_the_image_in_the_order_of_the_schema() -> None:
    model = VISION_LANGUAGE.load(ModelSource(name="vlm", version="1", folder=ROOT / "fixtures" / "models" / "vlm"))
    data = (ROOT / "fixtures" / "images" / "shape.jpg").read_bytes()
    one, other = {"shape": "star", "color": "blue"}, {"count": 1, "shape": "star"}
    for wanted in (one, other):
        properties = {key: {"type": "integer" if key == "count" else "string"} for key in wanted}
        schema = {"type": "object", "properties": properties, "required": [*wanted], "additionalProperties": False}
        text = answer_of(model, file_input(data, prompts=["Describe the picture as JSON."], json_schema=schema))
        assert list(json.loads(text).items()) == list(wanted.items())


def stacked(count: int) -> dict[str, Any]:
    return {"allOf": [{"type": "string", "pattern": f".*a.{{{index}}}b.*"} for index in range(count)]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "nope"}, "Invalid type: nope"),
        ({"type": "array", "uniqueItems": True}, 'Unimplemented keys: \\["uniqueItems"\\]'),
        ({"$ref": "#"}, "no value fits the schema"),
        ({"enum": [str(number) * 200 for number in range(400)]}, "at most 65,536 bytes of a schema"),
        ("{", "Expected a JSON object"),
        ("[1]", "Expected `object"),
        # It takes hours without the limit.
        (stacked(500), "at most 8 patterns and formats in a schema with allOf"),
        (stacked(8), "Unable to determine if regex is empty"),
        ({"anyOf": [{}], "properties": {"a": {"oneOf": stacked(9)["allOf"]}}}, "at most 8 patterns"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_schema_that_cannot_be_followed_is_rejected_with_the_reason(writer: Servable, schema: Any, reason: str) -> None:
    with pytest.raises(InferenceError, match=reason) as caught:
        predict(writer, text_input("a", json_schema=schema))
    assert caught.value.path.endswith("json_schema")
    with pytest.raises(InferenceError, match=reason):
        writer.stream(request(text_input("a", json_schema=schema)), Limits())


def test_unsupported_keyword_is_ignored_where_the_schema_asks_for_it(writer: Servable) -> None:
    schema = {"type": "array", "uniqueItems": True, "maxItems": 1, "x-guidance": {"lenient": True}}
    assert isinstance(json.loads(answer_of(writer, text_input("a", json_schema=schema, **SAMPLED))), list)


def test_tokenizer_of_whole_words_is_rejected_with_the_reason(tmp_path: Path) -> None:
    model = VISION_LANGUAGE.load(tiny.source(tiny.write_model(tmp_path)))
    with pytest.raises(InferenceError, match="tokenizer of this model is not supported") as caught:
        predict(model, file_input(encode_image(rectangle()), json_schema=SHAPE))
    assert caught.value.path == "json_schema"
