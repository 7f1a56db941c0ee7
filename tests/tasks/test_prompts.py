"""Sources of the prompts of an image."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.core.wire.bytes_elements import BinaryElement, StringElement
from tasks.image_text_to_text import DEFAULT_PROMPT, ImageTextToText
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor
from tests.support.data.images import encode_image, rectangle

IMAGE = BinaryElement(encode_image(rectangle()))


def image(count: int = 1, name: str = "image", **parameters: object) -> BytesTensor:
    return BytesTensor(name=name, shape=(count,), elements=[IMAGE] * count, parameters=parameters)


def text_input(*texts: str, name: str = "prompt", **parameters: object) -> BytesTensor:
    elements = [StringElement(text) for text in texts]
    return BytesTensor(name=name, shape=(len(texts),), elements=elements, parameters=parameters)


def prompts(
    *inputs: BytesTensor,
    parameters: Mapping[str, object] | None = None,
    defaults: Mapping[str, object] | None = None,
    **limits: Any,
) -> list[list[list[str]]]:
    """Return the prompts of each image, by image input."""
    request = InferenceRequest(id="r", model_name="m", inputs=inputs, parameters=parameters or {})
    groups = ImageTextToText().decode(request, defaults or {}, Limits(**limits))
    return [[list(item.prompts) for item in group.items] for group in groups]


def test_prompts_of_an_input_apply_to_each_of_its_images() -> None:
    assert prompts(image(2, prompts=["a", "b"])) == [[["a", "b"], ["a", "b"]]]


def test_prompt_with_lone_surrogate_is_rejected() -> None:
    with pytest.raises(InferenceError, match="lone surrogate") as caught:
        prompts(image(prompts=["a", "\ud800"]))
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, "inputs[0].parameters.prompts[1]")


@pytest.mark.parametrize("written", ['["a", "b"]', ' ["a","b"]', ["a", "b"]], ids=str)
def test_prompts_may_be_a_json_string(written: object) -> None:
    assert prompts(image(prompts=written)) == [[["a", "b"]]]


def test_a_plain_text_is_one_prompt() -> None:
    assert prompts(image(prompts="what [is] this?")) == [[["what [is] this?"]]]


def test_input_parameters_override_request_parameters_and_defaults() -> None:
    request_parameters = {"prompts": ["request"]}
    assert prompts(image(), parameters=request_parameters, defaults={"prompts": ["model"]}) == [[["request"]]]
    assert prompts(image(prompts=["own"]), parameters=request_parameters) == [[["own"]]]
    assert prompts(image(), defaults={"prompts": ["model"]}) == [[["model"]]]


@pytest.mark.parametrize("parameters", [{}, {"prompts": []}, {"prompts": None}, {"prompts": "[]"}], ids=str)
def test_default_prompt_is_used_when_there_is_none(parameters: dict[str, Any]) -> None:
    assert prompts(image(**parameters)) == [[[DEFAULT_PROMPT]]]


@pytest.mark.parametrize("name", ["prompt", "prompts", "question", "text", "Prompt"])
def test_text_inputs_are_recognized_by_name(name: str) -> None:
    assert prompts(image(), text_input("a", "b", name=name)) == [[["a", "b"]]]


def test_text_inputs_are_recognized_by_content_type() -> None:
    assert prompts(text_input("a", name="args", content_type="str"), image()) == [[["a"]]]


def test_text_inputs_apply_in_order_to_images_without_prompts() -> None:
    result = prompts(text_input("a"), image(), image(2, prompts=["own"]), text_input("b", name="text"), image())
    assert result == [[["a", "b"]], [["own"], ["own"]], [["a", "b"]]]


def test_text_inputs_override_the_model_defaults() -> None:
    assert prompts(image(), text_input("a"), defaults={"prompts": ["model"]}) == [[["a"]]]


def test_text_inputs_have_no_output_of_their_own() -> None:
    request = InferenceRequest(id="r", model_name="m", inputs=(text_input("a"), image(name="one"), image(name="two")))
    assert [group.name for group in ImageTextToText().decode(request, {}, Limits())] == ["one", "two"]


def test_binary_text_must_be_utf_8() -> None:
    text = BytesTensor(name="prompt", shape=(1,), elements=[BinaryElement("é".encode()), BinaryElement(b"\xff")])
    with pytest.raises(InferenceError, match="UTF-8") as caught:
        prompts(image(), text)
    assert caught.value.path == "inputs[1].data[1]"


def test_text_inputs_without_an_image_are_rejected() -> None:
    with pytest.raises(InferenceError, match="texts only") as caught:
        prompts(text_input("a"))
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, "inputs")


def test_prompts_and_tokens_are_limited() -> None:
    assert prompts(image(prompts=["a", "b"], max_new_tokens=5), max_prompts=2, max_new_tokens=5) == [[["a", "b"]]]
    with pytest.raises(InferenceError, match="at most 1 prompts in one request, got 3") as caught:
        prompts(image(), image(prompts=["a", "b"]), max_prompts=1)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.TOO_LARGE, "inputs[1].parameters.prompts")
    with pytest.raises(InferenceError, match="at most 4, got 5") as caught:
        prompts(image(max_new_tokens=5), max_new_tokens=4)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.TOO_LARGE, "inputs[0].parameters.max_new_tokens")


def test_texts_and_images_count_toward_max_inputs() -> None:
    assert prompts(image(), text_input("a", "b"), max_inputs=3)
    with pytest.raises(InferenceError, match="at most 2 images or texts in one request, got 3"):
        prompts(image(), text_input("a", "b"), max_inputs=2)


def test_null_prompts_do_not_override_text_inputs() -> None:
    assert prompts(image(prompts=None), text_input("a")) == [[["a"]]]
