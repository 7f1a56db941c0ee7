"""Sources of the prompts of an image."""

from collections.abc import Sequence
from typing import Any

import pytest

from tasks.image_text_to_text import DEFAULT_PROMPT, ImageTextToText
from tasks.inference.error import ErrorKind
from tasks.inference.limits import Limits
from tasks.inference.tensor import BytesTensor
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
         "at most 1 prompts in one request, got 3"),
        ([image(max_new_tokens=5)], {"max_new_tokens": 4}, "inputs[0].parameters.max_new_tokens", "at most 4, got 5"),
        ([image(), text("a", "b")], {"max_inputs": 2}, "inputs", "at most 2 images or texts in one request, got"),
    ],
)  # fmt: skip
def test_invalid_or_too_many_prompts_are_rejected(
    inputs: list[BytesTensor], limits: dict[str, Any], path: str, message: str
) -> None:
    with rejects(message, path, ErrorKind.TOO_LARGE if limits else ErrorKind.INVALID_REQUEST):
        prompts(*inputs, **limits)


def test_text_inputs_have_no_output_of_their_own() -> None:
    inputs = text("a"), image(name="one"), image(name="two")
    assert [group.name for group in ImageTextToText().decode(request(*inputs), {}, Limits())] == ["one", "two"]
