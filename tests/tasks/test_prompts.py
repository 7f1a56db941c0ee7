"""Where the prompts of an image come from."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.protocols.bytes_elements import BinaryElement, StringElement
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor
from tasks.image_text_to_text import DEFAULT_PROMPT, ImageTextToText
from tests.support.pictures import encoded, rectangle

PICTURE = BinaryElement(encoded(rectangle()))


def image(count: int = 1, name: str = "image", **parameters: object) -> BytesTensor:
    return BytesTensor(name=name, shape=(count,), elements=[PICTURE] * count, parameters=parameters)


def words(*said: str, name: str = "prompt", **parameters: object) -> BytesTensor:
    elements = [StringElement(each) for each in said]
    return BytesTensor(name=name, shape=(len(said),), elements=elements, parameters=parameters)


def prompts(
    *inputs: BytesTensor,
    parameters: Mapping[str, object] | None = None,
    defaults: Mapping[str, object] | None = None,
    **limits: Any,
) -> list[list[list[str]]]:
    """For each image input, the prompts of each of its images."""
    request = InferenceRequest(id="r", model_name="m", inputs=inputs, parameters=parameters or {})
    groups = ImageTextToText().decode(request, defaults or {}, Limits(**limits))
    return [[list(item.prompts) for item in group.items] for group in groups]


def test_an_images_own_prompts_are_put_to_each_of_its_images() -> None:
    assert prompts(image(2, prompts=["a", "b"])) == [[["a", "b"], ["a", "b"]]]


@pytest.mark.parametrize("written", ['["a", "b"]', ' ["a","b"]', ["a", "b"]], ids=str)
def test_prompts_may_be_a_string_of_json(written: object) -> None:
    assert prompts(image(prompts=written)) == [[["a", "b"]]]


def test_a_plain_text_is_one_prompt() -> None:
    assert prompts(image(prompts="what [is] this?")) == [[["what [is] this?"]]]


def test_the_nearer_parameters_win() -> None:
    everywhere = {"prompts": ["request"]}
    assert prompts(image(), parameters=everywhere, defaults={"prompts": ["model"]}) == [[["request"]]]
    assert prompts(image(prompts=["own"]), parameters=everywhere) == [[["own"]]]
    assert prompts(image(), defaults={"prompts": ["model"]}) == [[["model"]]]


@pytest.mark.parametrize("given", [{}, {"prompts": []}, {"prompts": None}, {"prompts": "[]"}], ids=str)
def test_a_default_prompt_is_put_when_there_is_none(given: dict[str, Any]) -> None:
    assert prompts(image(**given)) == [[[DEFAULT_PROMPT]]]


@pytest.mark.parametrize("name", ["prompt", "prompts", "question", "text", "Prompt"])
def test_text_inputs_are_known_by_their_names(name: str) -> None:
    assert prompts(image(), words("a", "b", name=name)) == [[["a", "b"]]]


def test_text_inputs_are_known_by_their_content_type() -> None:
    assert prompts(words("a", name="args", content_type="str"), image()) == [[["a"]]]


def test_several_text_inputs_are_put_in_order_to_every_image_without_its_own() -> None:
    found = prompts(words("a"), image(), image(2, prompts=["own"]), words("b", name="text"), image())
    assert found == [[["a", "b"]], [["own"], ["own"]], [["a", "b"]]]


def test_texts_win_over_the_models_defaults() -> None:
    assert prompts(image(), words("a"), defaults={"prompts": ["model"]}) == [[["a"]]]


def test_text_inputs_have_no_output_of_their_own() -> None:
    request = InferenceRequest(id="r", model_name="m", inputs=(words("a"), image(name="one"), image(name="two")))
    assert [group.name for group in ImageTextToText().decode(request, {}, Limits())] == ["one", "two"]


def test_binary_text_has_to_be_utf_8() -> None:
    text = BytesTensor(name="prompt", shape=(1,), elements=[BinaryElement("é".encode()), BinaryElement(b"\xff")])
    with pytest.raises(InferenceError, match="UTF-8") as caught:
        prompts(image(), text)
    assert caught.value.path == "inputs[1].data[1]"


def test_texts_alone_are_refused() -> None:
    with pytest.raises(InferenceError, match="texts only") as caught:
        prompts(words("a"))
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, "inputs")


def test_the_last_number_of_prompts_and_tokens_allowed() -> None:
    assert prompts(image(prompts=["a", "b"], max_new_tokens=5), max_prompts=2, max_new_tokens=5) == [[["a", "b"]]]
    with pytest.raises(InferenceError, match="at most 1 prompts in one request, got 3") as caught:
        prompts(image(), image(prompts=["a", "b"]), max_prompts=1)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.TOO_LARGE, "inputs[1].parameters.prompts")
    with pytest.raises(InferenceError, match="at most 4, got 5") as caught:
        prompts(image(max_new_tokens=5), max_new_tokens=4)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.TOO_LARGE, "inputs[0].parameters.max_new_tokens")


def test_texts_and_images_are_counted_together() -> None:
    assert prompts(image(), words("a", "b"), max_inputs=3)
    with pytest.raises(InferenceError, match="at most 2 images or texts in one request, got 3"):
        prompts(image(), words("a", "b"), max_inputs=2)


def test_null_prompts_leave_the_texts_of_the_request() -> None:
    assert prompts(image(prompts=None), words("a")) == [[["a"]]]
