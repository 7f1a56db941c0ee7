"""One instance of a model with a task: its forms, and where the body has what a task complains of."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.kserve_v1.instances import Instance, read_instance
from tasks.exchange.error import InferenceError
from tasks.exchange.tensor import BytesTensor, Datatype, Tensor
from tasks.text.request import TEXT_INPUT
from tasks.vision.request import IMAGE_INPUT
from tests.support.pictures import base64_text

IMAGE, TEXT = IMAGE_INPUT.name, TEXT_INPUT.name


def read(instance: object, name: str = IMAGE, *, prompts: bool | None = None) -> Instance:
    asked = name == IMAGE if prompts is None else prompts
    return read_instance(msgspec.Raw(json.dumps(instance).encode()), "inputs[3]", name, prompts=asked)


def binary(instance: Instance) -> bytes:
    assert isinstance(instance.tensor, BytesTensor)
    (element,) = instance.tensor.elements
    return element.binary()


def text(instance: Instance) -> str:
    assert isinstance(instance.tensor, BytesTensor)
    (element,) = instance.tensor.elements
    return element.text()


@given(st.binary(), st.sampled_from(["", "b64", "image", "image_bytes", "data", "image b64"]))
def test_bytes_come_as_they_went(data: bytes, form: str) -> None:
    instance: Any = base64_text(data)
    for name in reversed(form.split()):
        instance = {name: instance}
    read_back = read(instance)
    assert binary(read_back) == data
    assert read_back.tensor.name == "image"
    assert read_back.field("data[0]", "parameters") == ".".join(["inputs[3]", *form.split()])


@pytest.mark.parametrize("name", ["text", "prompt", "question", TEXT])
@pytest.mark.parametrize("value", ["Ann", "", "[not JSON", '{"b64": "QQ=="}', "data:text/plain,a", "Bår"])
def test_texts_come_as_they_went(name: str, value: str) -> None:
    for instance, place in (
        (value, "inputs[3]"),
        ({name: value}, f"inputs[3].{name}"),
        ({"b64": base64_text(value.encode())}, "inputs[3].b64"),
        ({name: {"b64": base64_text(value.encode())}}, f"inputs[3].{name}.b64"),
    ):
        found = read(instance, TEXT)
        assert text(found) == value
        assert found.field("data[0]", "parameters") == place


@pytest.mark.parametrize(
    ("instance", "path", "said"),
    [
        (5, "inputs[3]", "Expected a text"),
        ([1], "inputs[3]", "Expected a text"),
        ({}, "inputs[3]", 'Expected the text under "text" or "b64"'),
        ({"image": "a"}, "inputs[3]", 'Expected the text under "text" or "b64"'),
        ({"text": "a", "prompt": "b"}, "inputs[3]", "got 'text' and 'prompt'"),
        ({"text": "a", "max_new_tokens": 5}, "inputs[3]", "Expected nothing but the text"),
        ({"text": [1]}, "inputs[3].text", "Expected a text"),
        ({"b64": "*"}, "inputs[3].b64", "Expected base64"),
    ],
)
def test_what_is_no_text(instance: object, path: str, said: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read(instance, TEXT)
    assert caught.value.path == path
    assert said in caught.value.message


@pytest.mark.parametrize("name", ["prompt", "prompts", "question", "text"])
def test_what_a_model_does_not_take_is_refused_by_its_name(name: str) -> None:
    assert read({"b64": "", name: "why?"}).tensor.parameters == {"prompts": ["why?"]}
    with pytest.raises(InferenceError) as caught:
        read({"b64": "", name: "why?"}, prompts=False)
    assert caught.value.message == f"Expected nothing but the image, and \"parameters\", got '{name}' too"


def test_rows_of_pixels_are_a_tensor() -> None:
    for instance, datum in (([[1, 2], [3, 4]], "inputs[3]"), ({"image": [[1, 2], [3, 4]]}, "inputs[3].image")):
        found = read(instance)
        assert isinstance(found.tensor, Tensor)
        assert found.tensor.datatype is Datatype.UINT8
        assert found.tensor.data.tolist() == [[1, 2], [3, 4]]
        assert found.field("data[1][0]", "parameters") == f"{datum}[1][0]"
        for rest in ("data", "shape", "datatype"):
            assert found.field(rest, "parameters") == datum
        assert found.field("", "parameters") == "inputs[3]"


def test_parameters_are_named_where_they_stand() -> None:
    found = read({"b64": "", "prompt": "a", "parameters": {"top_k": 1, "labels": ["a"]}})
    assert found.field("parameters.top_k", "data.parameters") == "inputs[3].parameters.top_k"
    assert found.field("parameters.labels[0]", "data.parameters") == "inputs[3].parameters.labels[0]"
    assert found.field("parameters.seed", "data.parameters") == "data.parameters.seed"
    assert found.field("parameters.prompts[0]", "data.parameters") == "inputs[3].prompt[0]"
    assert read("").field("parameters.prompts", "parameters") == "parameters.prompts"


def test_parameters_reach_the_tensor() -> None:
    found = read({"image": "", "question": "a", "parameters": {"top_k": 1, "metadata": {"a": 1.50}}})
    assert found.tensor.parameters["top_k"] == 1
    assert found.tensor.parameters["prompts"] == ["a"]
    assert found.tensor.parameters["metadata"] == msgspec.Raw(b'{"a": 1.5}')
    assert "content_type" not in read({"image": "", "parameters": {"content_type": "str"}}).tensor.parameters
