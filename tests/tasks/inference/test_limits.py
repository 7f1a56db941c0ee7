"""Limits of every request."""

import msgspec
import numpy as np
import pytest

from app.core.wire.bytes_elements import StringElement
from tasks.inference.error import ErrorKind
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest, check_request
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tests.support.rejection import rejects

NUMBERS = Tensor(name="x", datatype=Datatype.FP32, data=np.zeros((2, 3), np.float32))
TEXTS = BytesTensor(name="t", shape=(2,), elements=[StringElement("a")] * 2, parameters={"p": 1})
REQUEST = InferenceRequest(id="i", model_name="m", inputs=(NUMBERS, TEXTS), parameters={"q": 1})


def test_elements_are_counted_over_all_inputs() -> None:
    check_request(REQUEST, Limits(max_elements=8))
    with rejects("at most 7 tensor elements in one request, got 8", "inputs[1]", ErrorKind.TOO_LARGE):
        check_request(REQUEST, Limits(max_elements=7))


@pytest.mark.parametrize("name", ["abcdef", "ü" * 3, "\ud800" * 2], ids=["ascii", "two bytes", "half a character"])
def test_length_of_every_name_is_limited(name: str) -> None:
    replace = msgspec.structs.replace
    for path, request in {
        "id": replace(REQUEST, id=name),
        "model_name": replace(REQUEST, model_name=name),
        "parameters": replace(REQUEST, parameters={name: 1}),
        "inputs[0].name": replace(REQUEST, inputs=(replace(NUMBERS, name=name),)),
        "inputs[1].parameters": replace(REQUEST, inputs=(NUMBERS, replace(TEXTS, parameters={name: 1}))),
    }.items():
        check_request(request, Limits(max_name_length=6))
        with rejects("at most 5 bytes in a name, got 6", path, ErrorKind.TOO_LARGE):
            check_request(request, Limits(max_name_length=5))


def test_request_parameters_count_once_for_each_input() -> None:
    for parameters, limits, expected in (
        ({"metadata": "abc"}, Limits(max_request_bytes=5), "at most 5 bytes of the request's parameters"),
        ({"metadata": msgspec.Raw(b"123")}, Limits(max_request_bytes=5), "at most 5 bytes of the request's parameters"),
        ({"a": 1, "b": 2}, Limits(max_entries=3), "at most 3 parameters of the request"),
    ):
        check_request(msgspec.structs.replace(REQUEST, parameters=parameters, inputs=(TEXTS,)), limits)
        with rejects(expected, "parameters", ErrorKind.TOO_LARGE):
            check_request(msgspec.structs.replace(REQUEST, parameters=parameters), limits)
