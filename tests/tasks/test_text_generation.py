"""Texts of a request and their arguments."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.inference.error import ErrorKind
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import Datatype, InputTensor, Tensor
from tasks.text_generation import ContinuedText, TextGeneration
from tests.support.data.requests import file_input, request, text_input
from tests.support.rejection import rejects


def argument(name: str, *values: object, datatype: Datatype = Datatype.INT64, **parameters: object) -> Tensor:
    return Tensor(name=name, datatype=datatype, data=np.array(values, datatype.dtype), parameters=parameters)


def read(
    wanted: InferenceRequest, defaults: Mapping[str, object] | None = None, **limits: Any
) -> list[tuple[str, list[ContinuedText]]]:
    groups = TextGeneration().decode(wanted, defaults or {}, Limits(**limits))
    return [(group.name, list(group.items)) for group in groups]


def read_one(*inputs: InputTensor) -> ContinuedText:
    ((_, (item,)),) = read(request(*inputs))
    return item


def test_arguments_override_request_parameters_but_not_input_parameters() -> None:
    inputs = (text_input("a"), text_input("b", top_k=3), argument("top_k", 2))
    groups = read(request(*inputs, top_k=1, seed=7), {"seed": 1})
    assert [(items[0].parameters.top_k, items[0].parameters.seed) for _, items in groups] == [(2, 7), (3, 7)]


def test_argument_may_be_one_text_or_several() -> None:
    for stop in (("red", "blue"), ("red",)):
        assert read_one(text_input("x"), text_input(*stop, name="stop")).parameters.stop == stop


@pytest.mark.parametrize(
    ("parameters", "temperature"),
    [
        ({}, 0.0), ({"temperature": 0.5}, 0.5), ({"do_sample": False, "temperature": 0.5}, 0.0),
        ({"do_sample": True}, 1.0), ({"do_sample": True, "temperature": 0.5}, 0.5),
    ],
)  # fmt: skip
def test_do_sample_determines_the_temperature(parameters: dict[str, Any], temperature: float) -> None:
    assert read_one(text_input("a", **parameters)).parameters.temperature == temperature


def test_unknown_raw_argument_is_ignored() -> None:
    assert read_one(text_input("a"), argument("num_beams", 4, content_type="raw")).text == "a"


@pytest.mark.parametrize(
    ("inputs", "path", "reason"),
    [
        ((text_input("a"), argument("temperature", np.nan, datatype=Datatype.FP32)), "inputs[1].data", "finite"),
        ((text_input("a"), argument("temperature", 1, datatype=Datatype.BF16)), "inputs[1].data", "BF16"),
        ((), "inputs", "at least one input"),
        ((file_input(b"\xff"),), "inputs[0].data[0]", "UTF-8"),
    ],
)
def test_invalid_inputs_are_rejected(inputs: tuple[InputTensor, ...], path: str, reason: str) -> None:
    with rejects(reason, path):
        read(request(*inputs))


def test_too_many_texts_are_rejected() -> None:
    with rejects(path="inputs", kind=ErrorKind.TOO_LARGE):
        read(request(text_input("a", "b")), max_inputs=1)


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_texts_are_read_unchanged(texts: list[str]) -> None:
    ((_, items),) = read(request(text_input(*texts)))
    assert [item.text for item in items] == texts
