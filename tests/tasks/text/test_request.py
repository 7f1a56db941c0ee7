"""How the texts of a request, and the arguments beside them, are read."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.bytes_elements import BinaryElement, StringElement
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor, Tensor
from tasks.text_classification import TextClassification
from tasks.text_generation import ContinuedText, TextGeneration
from tasks.token_classification import TokenClassification


def words(*said: str, name: str = "args", **parameters: Any) -> BytesTensor:
    elements = [StringElement(each) for each in said]
    return BytesTensor(name=name, shape=(len(said),), elements=elements, parameters=parameters)


def number(name: str, *values: object, datatype: Datatype = Datatype.INT64, **parameters: object) -> Tensor:
    return Tensor(name=name, datatype=datatype, data=np.array(values, datatype.dtype), parameters=parameters)


def read(
    *inputs: InputTensor,
    parameters: Mapping[str, object] | None = None,
    defaults: Mapping[str, object] | None = None,
    limits: Limits = Limits(),  # noqa: B008
) -> list[tuple[str, list[ContinuedText]]]:
    request = InferenceRequest(id="r", model_name="m", inputs=inputs, parameters=parameters or {})
    groups = TextGeneration().decode(request, defaults or {}, limits)
    return [(group.name, list(group.items)) for group in groups]


def only(*inputs: InputTensor, **more: Any) -> ContinuedText:
    ((_, (item,)),) = read(*inputs, **more)
    return item


def test_every_element_is_a_text() -> None:
    found = read(words("a", "b"), words("c", name="more"))
    assert [(name, [each.item.text for each in items]) for name, items in found] == [
        ("args", ["a", "b"]),
        ("more", ["c"]),
    ]
    assert [each.item.path for _, items in found for each in items] == [
        "inputs[0].data[0]", "inputs[0].data[1]", "inputs[1].data[0]",
    ]  # fmt: skip


def test_the_example_of_the_chariot_page() -> None:
    item = only(
        words("Prompt here"),
        number("max_new_tokens", 500, content_type="raw"),
        number("temperature", 0.8, datatype=Datatype.FP64, content_type="raw"),
        number("do_sample", 1, datatype=Datatype.INT8, content_type="raw"),
    )
    assert item.item.text == "Prompt here"
    assert (item.parameters.max_new_tokens, item.parameters.temperature) == (500, 0.8)


def test_arguments_go_over_the_requests_parameters_and_under_an_inputs_own() -> None:
    asked = (words("a"), words("b", top_k=3), number("top_k", 2))
    found = read(*asked, parameters={"top_k": 1, "seed": 7}, defaults={"seed": 1})
    assert [(items[0].parameters.top_k, items[0].parameters.seed) for _, items in found] == [(2, 7), (3, 7)]


def test_an_argument_may_be_a_text_or_several() -> None:
    request = InferenceRequest(
        id="r",
        model_name="m",
        inputs=(words("x"), words("red", "blue", name="labels"), words("max", name="aggregation_strategy")),
    )
    ((item,),) = [group.items for group in TokenClassification().decode(request, {}, Limits())]
    assert item.parameters.labels == ("red", "blue")
    assert item.parameters.aggregation_strategy == "max"


@pytest.mark.parametrize(
    ("given", "temperature"),
    [
        ({}, 0.0), ({"temperature": 0.5}, 0.5), ({"do_sample": False, "temperature": 0.5}, 0.0),
        ({"do_sample": True}, 1.0), ({"do_sample": True, "temperature": 0.5}, 0.5),
    ],
)  # fmt: skip
def test_do_sample_settles_the_temperature(given: dict[str, Any], temperature: float) -> None:
    assert only(words("a", **given)).parameters.temperature == temperature


def test_an_unknown_raw_argument_is_passed_over() -> None:
    assert only(words("a"), number("num_beams", 4, content_type="raw")).item.text == "a"


@pytest.mark.parametrize(
    ("inputs", "path", "reason"),
    [
        ((words("a"), number("pixels", 1)), "inputs[1].datatype", "BYTES with texts, got INT64"),
        ((number("top_k", 1),), "inputs", "arguments only"),
        ((words("a"), number("top_k", 1), number("top_k", 2)), "inputs[2].name", "once"),
        ((words("a"), number("top_k", 0)), "inputs[1].data", ">= 1"),
        ((words("a"), number("top_k", 1, 2)), "inputs[1].data", "int"),
        ((words("a"), number("top_k")), "inputs[1].data", "got none"),
        ((words("a"), number("do_sample", 2)), "inputs[1].data", "bool"),
        ((words("a"), number("temperature", np.nan, datatype=Datatype.FP32)), "inputs[1].data", "finite"),
        ((words("a"), number("temperature", 1, datatype=Datatype.BF16)), "inputs[1].data", "BF16"),
        ((words("a"), words("x", name="seed")), "inputs[1].data", "int"),
        ((words("a", top_k="x"),), "inputs[0].parameters.top_k", "int"),
        ((words(),), "inputs[0].data", "at least one text"),
        ((), "inputs", "at least one input"),
        ((words("a", "\ud800"),), "inputs[0].data[1]", r"lone surrogate, U\+D800"),
        ((BytesTensor(name="a", shape=(1,), elements=[BinaryElement(b"\xff")]),), "inputs[0].data[0]", "UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused(inputs: tuple[InputTensor, ...], path: str, reason: str) -> None:
    with pytest.raises(InferenceError, match=reason) as caught:
        read(*inputs)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, path)


@pytest.mark.parametrize(
    ("inputs", "limits", "path"),
    [
        ((words("a", "b"),), Limits(max_prompts=1), "inputs"),
        ((words("a", "b"),), Limits(max_inputs=1), "inputs"),
        ((words("a"), number("max_new_tokens", 9)), Limits(max_new_tokens=8), "inputs[0].parameters.max_new_tokens"),
    ],
)
def test_what_is_too_much_is_refused(inputs: tuple[InputTensor, ...], limits: Limits, path: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read(*inputs, limits=limits)
    assert (caught.value.kind, caught.value.path) == (ErrorKind.TOO_LARGE, path)


@pytest.mark.parametrize("task", [TextClassification(), TokenClassification()])
def test_told_classes_are_refused(task: TextClassification | TokenClassification) -> None:
    request = InferenceRequest(id="r", model_name="m", inputs=(words("a", candidate_labels=["b"]),))
    with pytest.raises(InferenceError) as caught:
        task.decode(request, {}, Limits())
    assert caught.value.path == "inputs[0].parameters.candidate_labels"


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_texts_come_through_unchanged(texts: list[str]) -> None:
    ((_, items),) = read(words(*texts))
    assert [each.item.text for each in items] == texts
