"""Sources of the prompts of an image, and conversations as parameters of both generation tasks."""

from collections.abc import Sequence
from typing import Any

import pytest

from tasks.image_text_to_text import DEFAULT_PROMPT, ImageTextToText, PromptedImage
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import BytesTensor
from tasks.text.generation import Message, MessagePart, question, reject_conversation
from tasks.text_generation import TextGeneration
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input, request, text_input
from tests.support.rejection import rejects

PNG = encode_image(rectangle())


def image(count: int = 1, name: str = "image", **parameters: object) -> BytesTensor:
    return file_input(*[PNG] * count, name=name, **parameters)


def text(*texts: str, name: str = "prompt", **parameters: object) -> BytesTensor:
    return text_input(*texts, name=name, **parameters)


def prompts(
    *inputs: BytesTensor, own: Sequence[str] = (), model: Sequence[str] = (), **limits: Any
) -> list[list[list[str]]]:
    """Return the prompts of each image, by image input; the request and the model may have prompts of their own."""
    parameters, defaults = ({"prompts": layer} if layer else {} for layer in (own, model))
    groups = ImageTextToText().decode(request(*inputs, **parameters), defaults, Limits(**limits))
    return [[list(item.prompts) for item in group.items] for group in groups]


@pytest.mark.parametrize(
    ("inputs", "layers", "expected"),
    [
        ([image(2, prompts=["a", "b"])], {}, [[["a", "b"], ["a", "b"]]]),
        ([image(prompts=' ["a","b"]')], {}, [[["a", "b"]]]),
        ([image(prompts="what [is] this?")], {}, [[["what [is] this?"]]]),
        # The parameters of an input override those of the request, and these those of the model.
        ([image()], {"own": ["request"], "model": ["model"]}, [[["request"]]]),
        ([image(prompts=["own"])], {"own": ["request"]}, [[["own"]]]),
        ([image()], {"model": ["model"]}, [[["model"]]]),
        ([image()], {}, [[[DEFAULT_PROMPT]]]),
        ([image(prompts="[]")], {}, [[[DEFAULT_PROMPT]]]),
        # Texts are recognised by their name or content type, and apply in order to images without prompts.
        *(
            ([image(), text("a", "b", name=name)], {}, [[["a", "b"]]])
            for name in ("prompt", "prompts", "question", "text", "Prompt")
        ),
        ([text("a", name="args", content_type="str"), image()], {}, [[["a"]]]),
        (
            [text("a"), image(), image(2, prompts=["own"]), text("b", name="text"), image()],
            {},
            [[["a", "b"]], [["own"], ["own"]], [["a", "b"]]],
        ),
        ([image(), text("a")], {"model": ["model"]}, [[["a"]]]),
        ([image(prompts=None), text("a")], {}, [[["a"]]]),
    ],
)
def test_prompts_come_from_inputs_texts_request_or_model(
    inputs: list[BytesTensor], layers: dict[str, Any], expected: list[list[list[str]]]
) -> None:
    assert prompts(*inputs, **layers) == expected


@pytest.mark.parametrize(
    ("inputs", "limits", "path", "message"),
    [
        ([image(prompts=["a", "\ud800"])], {}, "inputs[0].parameters.prompts[1]", "lone surrogate"),
        ([image(), file_input("é".encode(), b"\xff", name="prompt")], {}, "inputs[1].data[1]", "UTF-8"),
        ([text("a")], {}, "inputs", "texts only"),
        ([image(), image(prompts=["a", "b"])], {"max_prompts": 1}, "inputs[1].parameters.prompts",
         r"at most 1 prompts in a request \(--max-prompts\), got 3"),
        ([image(max_new_tokens=5)], {"max_new_tokens": 4}, "inputs[0].parameters.max_new_tokens",
         r"at most 4 \(--max-new-tokens\), got 5"),
        ([image(), text("a", "b")], {"max_inputs": 2}, "inputs",
         r"at most 2 images or texts in one request \(--max-inputs\), got"),
    ],
)  # fmt: skip
def test_invalid_or_too_many_prompts_are_rejected(
    inputs: list[BytesTensor], limits: dict[str, Any], path: str, message: str
) -> None:
    with rejects(message, path, ErrorKind.TOO_LARGE if limits else ErrorKind.INVALID_REQUEST):
        prompts(*inputs, **limits)


IMAGE_PART = {"type": "image"}
WHAT = {"role": "user", "content": [IMAGE_PART, {"type": "text", "text": "what?"}]}
ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "a box"}]}
HALF = {"role": "user", "content": [IMAGE_PART, {"type": "text", "text": "\ud800"}]}
WHERE = {"role": "user", "content": [{"type": "text", "text": "where?"}]}


def decode_images(count: int, messages: object, defaults: Any = None, **limits: Any) -> PromptedImage:
    tensor = file_input(*[PNG] * count, messages=messages)
    (group,) = ImageTextToText().decode(request(tensor), defaults or {}, Limits(**limits))
    (item,) = group.items
    return item


def test_one_question_about_one_image_is_a_prompt() -> None:
    item = decode_images(1, [WHAT])
    assert (item.prompts, item.parameters.messages, len(item.images)) == (("what?",), None, 1)


@pytest.mark.parametrize("before", [[], [WHAT, ANSWER]])
def test_image_without_a_text_asks_the_models_default_question(before: list[object]) -> None:
    count, messages = 1 + bool(before), [*before, {"role": "user", "content": [IMAGE_PART]}]
    assert decode_images(count, messages).prompts == (DEFAULT_PROMPT,)
    item = decode_images(count, messages, {"prompts": ["which?", "why?"]})
    assert item.prompts == ("which?",)
    assert (item.parameters.messages or (None,))[-1] == (question("which?") if before else None)


def test_conversation_keeps_its_messages_and_all_images() -> None:
    item = decode_images(3, [WHAT, ANSWER, {"role": "user", "content": [IMAGE_PART, IMAGE_PART, *WHERE["content"]]}])
    assert item.prompts == ("where?",)
    assert item.parameters.messages is not None
    assert [message.role for message in item.parameters.messages] == ["user", "assistant", "user"]
    assert len(item.images) == 3


def test_conversation_without_images_has_none() -> None:
    item = decode_images(0, [WHERE])
    assert (item.prompts, len(item.images)) == (("where?",), 0)
    assert item.parameters.messages is not None
    with rejects("answers no question without one", "inputs[0].parameters.messages"):
        _ = item.image


@pytest.mark.parametrize(
    ("count", "messages", "kind", "message"),
    [
        (1, list[Any](), ErrorKind.INVALID_REQUEST, "the last one from the user"),
        (1, [WHAT, ANSWER], ErrorKind.INVALID_REQUEST, "the last one from the user"),
        (2, [WHAT], ErrorKind.INVALID_REQUEST, "the 2 images of the request, got places for 1"),
        (1, [WHERE], ErrorKind.INVALID_REQUEST, "the 1 images of the request, got places for 0"),
        (1, [{"role": "tool", "content": list[Any]()}], ErrorKind.INVALID_REQUEST, "Invalid enum value"),
        (1, [HALF], ErrorKind.INVALID_REQUEST, "Expected Unicode text, got a lone surrogate"),
        (1, [WHAT, WHERE], ErrorKind.TOO_LARGE, r"at most 10 characters in all messages \(--max-text-length\), got 11"),
    ],
)
def test_invalid_messages_are_rejected(count: int, messages: object, kind: ErrorKind, message: str) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        decode_images(count, messages, max_text_length=10)
    assert caught.value.kind is kind
    assert caught.value.path.startswith("inputs[0].parameters.messages")


def test_text_generation_rejects_images_in_messages() -> None:
    with pytest.raises(InferenceError, match="places for 1"):
        TextGeneration().decode(request(text_input("what?"), messages=[WHAT]), {}, Limits())


def test_models_without_a_template_reject_several_messages_and_images() -> None:
    one, two = Message("user", (MessagePart(type="text", text="a"),)), Message("user", (MessagePart(type="image"),) * 2)
    reject_conversation(None, "messages")
    reject_conversation([one], "messages")
    for messages in ([one, one], [two]):
        with pytest.raises(InferenceError, match="no chat template for a conversation"):
            reject_conversation(messages, "messages")
