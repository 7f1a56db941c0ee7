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


NONE: dict[str, Any] = {}
OWN: dict[str, Any] = {"prompts": ["request"]}
MODEL: dict[str, Any] = {"prompts": ["model"]}


@pytest.mark.parametrize(
    ("inputs", "layers", "expected"),
    [
        ([image(2, prompts=["a", "b"])], (NONE, NONE), [[["a", "b"], ["a", "b"]]]),
        ([image(prompts=' ["a","b"]')], (NONE, NONE), [[["a", "b"]]]),
        ([image(prompts="what [is] this?")], (NONE, NONE), [[["what [is] this?"]]]),
        # The parameters of an input override those of the request, and these those of the model.
        ([image()], (OWN, MODEL), [[["request"]]]),
        ([image(prompts=["own"])], (OWN, NONE), [[["own"]]]),
        ([image()], (NONE, MODEL), [[["model"]]]),
        ([image()], (NONE, NONE), [[[DEFAULT_PROMPT]]]),
        ([image(prompts="[]")], (NONE, NONE), [[[DEFAULT_PROMPT]]]),
        # Texts are recognised by their name or content type, and apply in order to images without prompts.
        *(
            ([image(), text_input("a", "b", name=name)], (NONE, NONE), [[["a", "b"]]])
            for name in ("prompt", "prompts", "question", "text", "Prompt")
        ),
        ([text_input("a", name="args", content_type="str"), image()], (NONE, NONE), [[["a"]]]),
        (
            [text_input("a"), image(), image(2, prompts=["own"]), text_input("b", name="text"), image()],
            (NONE, NONE),
            [[["a", "b"]], [["own"], ["own"]], [["a", "b"]]],
        ),
        ([image(), text_input("a")], (NONE, MODEL), [[["a"]]]),
        ([image(prompts=None), text_input("a")], (NONE, NONE), [[["a"]]]),
    ],
)
def test_prompts_come_from_inputs_texts_request_or_model(
    inputs: list[BytesTensor], layers: tuple[dict[str, Any], dict[str, Any]], expected: list[list[list[str]]]
) -> None:
    assert prompts(*inputs, parameters=layers[0], defaults=layers[1]) == expected


BINARY = BytesTensor(name="prompt", shape=(1,), elements=[BinaryElement("é".encode()), BinaryElement(b"\xff")])


@pytest.mark.parametrize(
    ("inputs", "limits", "path", "message"),
    [
        ([image(prompts=["a", "\ud800"])], {}, "inputs[0].parameters.prompts[1]", "lone surrogate"),
        ([image(), BINARY], {}, "inputs[1].data[1]", "UTF-8"),
        ([text_input("a")], {}, "inputs", "texts only"),
        (
            [image(), image(prompts=["a", "b"])],
            {"max_prompts": 1},
            "inputs[1].parameters.prompts",
            "at most 1 prompts in one request, got 3",
        ),
        ([image(max_new_tokens=5)], {"max_new_tokens": 4}, "inputs[0].parameters.max_new_tokens", "at most 4, got 5"),
        ([image(), text_input("a", "b")], {"max_inputs": 2}, "inputs", "at most 2 images or texts in one request, got"),
    ],
)
def test_invalid_or_too_many_prompts_are_rejected(
    inputs: list[BytesTensor], limits: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        prompts(*inputs, **limits)
    kind = ErrorKind.TOO_LARGE if limits else ErrorKind.INVALID_REQUEST
    assert (caught.value.kind, caught.value.path) == (kind, path)


def test_text_inputs_have_no_output_of_their_own() -> None:
    request = InferenceRequest(id="r", model_name="m", inputs=(text_input("a"), image(name="one"), image(name="two")))
    assert [group.name for group in ImageTextToText().decode(request, {}, Limits())] == ["one", "two"]
