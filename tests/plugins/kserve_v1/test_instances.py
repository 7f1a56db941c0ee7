"""Test one instance of a model with a task: its forms, and the paths of task errors in the body."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plugins.kserve_v1.instances import Instance, read_instance
from tasks.inference.error import InferenceError
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tasks.text.request import TEXT_INPUT
from tasks.vision.request import IMAGE_INPUT
from tests.support.data.images import encode_base64

IMAGE, TEXT = IMAGE_INPUT.name, TEXT_INPUT.name


def read(instance: object, name: str = IMAGE, *, prompts: bool | None = None) -> Instance:
    takes_prompts = name == IMAGE if prompts is None else prompts
    return read_instance(msgspec.Raw(json.dumps(instance).encode()), "inputs[3]", name, prompts=takes_prompts)


def binary(instance: Instance) -> bytes:
    assert isinstance(instance.tensor, BytesTensor)
    (element,) = instance.tensor.elements
    return element.binary()


def text(instance: Instance) -> str:
    assert isinstance(instance.tensor, BytesTensor)
    (element,) = instance.tensor.elements
    return element.text()


@given(st.binary(), st.sampled_from(["", "b64", "image", "image_bytes", "data", "image b64"]))
def test_image_bytes_round_trip_in_every_form(data: bytes, form: str) -> None:
    instance: Any = encode_base64(data)
    for name in reversed(form.split()):
        instance = {name: instance}
    parsed = read(instance)
    assert binary(parsed) == data
    assert parsed.tensor.name == "image"
    assert parsed.body_path("data[0]", "parameters") == ".".join(["inputs[3]", *form.split()])


@pytest.mark.parametrize("name", ["text", "prompt", "question", TEXT])
@pytest.mark.parametrize("value", ["Ann", "", "[not JSON", '{"b64": "QQ=="}', "data:text/plain,a", "Bår"])
def test_texts_round_trip_in_every_form(name: str, value: str) -> None:
    for instance, path in (
        (value, "inputs[3]"),
        ({name: value}, f"inputs[3].{name}"),
        ({"b64": encode_base64(value.encode())}, "inputs[3].b64"),
        ({name: {"b64": encode_base64(value.encode())}}, f"inputs[3].{name}.b64"),
    ):
        parsed = read(instance, TEXT)
        assert text(parsed) == value
        assert parsed.body_path("data[0]", "parameters") == path


@pytest.mark.parametrize(
    ("instance", "path", "message"),
    [
        (5, "inputs[3]", "Expected a text"),
        ({}, "inputs[3]", 'Expected the text under "text" or "b64"'),
        ({"text": "a", "prompt": "b"}, "inputs[3]", "got 'text' and 'prompt'"),
        ({"text": "a", "max_new_tokens": 5}, "inputs[3]", "Expected nothing but the text"),
        ({"text": [1]}, "inputs[3].text", "Expected a text"),
        ({"b64": "*"}, "inputs[3].b64", "Expected base64"),
    ],
)
def test_invalid_text_is_rejected_with_its_path(instance: object, path: str, message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read(instance, TEXT)
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["prompt", "text"])
def test_prompt_for_a_model_without_prompts_is_rejected(name: str) -> None:
    assert read({"b64": "", name: "why?"}).tensor.parameters == {"prompts": ["why?"]}
    with pytest.raises(InferenceError) as caught:
        read({"b64": "", name: "why?"}, prompts=False)
    assert caught.value.message == f"Expected nothing but the image, and \"parameters\", got '{name}' too"


def test_pixel_rows_become_a_tensor() -> None:
    for instance, base_path in (([[1, 2], [3, 4]], "inputs[3]"), ({"image": [[1, 2], [3, 4]]}, "inputs[3].image")):
        parsed = read(instance)
        assert isinstance(parsed.tensor, Tensor)
        assert parsed.tensor.datatype is Datatype.UINT8
        assert parsed.tensor.data.tolist() == [[1, 2], [3, 4]]
        assert parsed.body_path("data[1][0]", "parameters") == f"{base_path}[1][0]"
        for field in ("data", "shape", "datatype"):
            assert parsed.body_path(field, "parameters") == base_path
        assert parsed.body_path("", "parameters") == "inputs[3]"


def test_parameter_errors_name_their_path() -> None:
    parsed = read({"b64": "", "prompt": "a", "parameters": {"top_k": 1, "labels": ["a"]}})
    assert parsed.body_path("parameters.top_k", "data.parameters") == "inputs[3].parameters.top_k"
    assert parsed.body_path("parameters.labels[0]", "data.parameters") == "inputs[3].parameters.labels[0]"
    assert parsed.body_path("parameters.seed", "data.parameters") == "data.parameters.seed"
    assert parsed.body_path("parameters.prompts[0]", "data.parameters") == "inputs[3].prompt[0]"
    assert read("").body_path("parameters.prompts", "parameters") == "parameters.prompts"


def test_parameters_are_passed_to_the_tensor() -> None:
    parsed = read({"image": "", "question": "a", "parameters": {"top_k": 1, "metadata": {"a": 1.50}}})
    assert parsed.tensor.parameters["top_k"] == 1
    assert parsed.tensor.parameters["prompts"] == ["a"]
    assert parsed.tensor.parameters["metadata"] == msgspec.Raw(b'{"a": 1.5}')
    assert "content_type" not in read({"image": "", "parameters": {"content_type": "str"}}).tensor.parameters
