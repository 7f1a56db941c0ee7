"""Requests: layers of parameters, limits, rejected values, and the field that an error names."""

from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.wire.bytes_elements import StringElement
from tasks.image_segmentation import SegmentationParameters
from tasks.image_text_to_text import GenerationParameters
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest, check_request, convert, read_parameters
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tasks.object_detection import DetectionParameters
from tasks.vision.filtering import SelectionParameters
from tests.support.rejection import rejects


def rejection(kind: type[Any], parameters: dict[str, object]) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        read_parameters(kind, parameters, path="inputs[3].parameters")
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    return caught.value


NOTHING: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("layers", "values"),
    [
        ([NOTHING, NOTHING], NOTHING),
        (
            [{"score_threshold": 0.1, "top_k": 5}, {"score_threshold": 0.2}, {"iou_threshold": 0.3}],
            {"score_threshold": 0.2, "top_k": 5, "iou_threshold": 0.3},
        ),
        # Null is like absent, and unknown names are ignored.
        ([{"score_threshold": 0.9}, {"score_threshold": None, "labels": None}], {"score_threshold": 0.9}),
        ([{"content_type": "np", "metadata": msgspec.Raw(b"{"), "x": object(), "Top_K": "no"}], NOTHING),
        ([{"score_threshold": 0}], {"score_threshold": 0.0}),
        ([{"score_threshold": 1}], {"score_threshold": 1.0}),
    ],
)
def test_later_layers_override_field_by_field(layers: list[dict[str, object]], values: dict[str, Any]) -> None:
    before = [dict(layer) for layer in layers]
    assert read_parameters(DetectionParameters, *layers) == DetectionParameters(**values)
    assert layers == before, "layers are not changed"


@pytest.mark.parametrize(
    ("written", "labels"),
    [
        (["a", "b"], ("a", "b")), ('["a","b"]', ("a", "b")), ('\n ["a"]', ("a",)), ("[]", ()), ([], ()),
        ("plain", ("plain",)), ("", ("",)), ('{"a": 1}', ('{"a": 1}',)), ('"a"', ('"a"',)),
    ],
    ids=str,
)  # fmt: skip
def test_list_of_texts_may_be_json_or_plain_text(written: object, labels: tuple[str, ...]) -> None:
    assert read_parameters(SelectionParameters, {"labels": written}).labels == labels


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SelectionParameters, "score_threshold"), (DetectionParameters, "iou_threshold"),
        (SelectionParameters, "top_k"),
        (SegmentationParameters, "epsilon"), (GenerationParameters, "temperature"), (GenerationParameters, "top_p"),
        (GenerationParameters, "seed"), (SelectionParameters, "labels"), (SelectionParameters, "action"),
    ],
)  # fmt: skip
def test_non_finite_numbers_are_rejected(kind: type[Any], name: str, number: float) -> None:
    error = rejection(kind, {name: number})
    assert error.path == f"inputs[3].parameters.{name}"
    assert str(number) in error.message


FRACTIONS: list[object] = ["0.5", True, [0.5], {"a": 1}, -0.0001, 1.0001, 10**400, "", "NaN"]
COUNTS: list[object] = ["5", True, 0, -1, 1.5, [1], -(10**400)]


@pytest.mark.parametrize(
    ("kind", "parameters", "path"),
    [
        *((DetectionParameters, {"iou_threshold": value}, "iou_threshold") for value in FRACTIONS),
        *((GenerationParameters, {"max_new_tokens": value}, "max_new_tokens") for value in COUNTS),
        *((SelectionParameters, {"top_k": value}, "top_k") for value in COUNTS),
        *((SegmentationParameters, {"epsilon": value}, "epsilon") for value in (-0.5, "1", True, [1])),
        (GenerationParameters, {"temperature": -0.1}, "temperature"), (GenerationParameters, {"seed": -1}, "seed"),
        (GenerationParameters, {"temperature": "0"}, "temperature"), (GenerationParameters, {"seed": 1.0}, "seed"),
        (GenerationParameters, {"top_p": 2}, "top_p"), (GenerationParameters, {"prompts": "[what is this?"}, "prompts"),
        *((SelectionParameters, {"labels": value}, "labels") for value in (5, {"a": 1}, "[a]", '["a"] x')),
        *((SelectionParameters, {"labels": value}, "labels[1]") for value in (["a", 5], ["a", None], '["a", 5]')),
        (SelectionParameters, {"labels": [["a"]]}, "labels[0]"),
        *((SelectionParameters, {"action": value}, "action") for value in (5, ["predict"])),
    ],
    ids=str,
)  # fmt: skip
def test_invalid_value_is_rejected_with_its_field(kind: type[Any], parameters: dict[str, object], path: str) -> None:
    assert rejection(kind, parameters).path == f"inputs[3].parameters.{path}"


def test_text_that_begins_as_a_list_must_be_json() -> None:
    message = rejection(GenerationParameters, {"prompts": "[what is this?"}).message
    assert message.startswith("Expected a JSON array of strings, got text that is not JSON")


def test_convert_names_the_field_without_a_prefix() -> None:
    with pytest.raises(InferenceError) as caught:
        convert({"a": [1, "x"]}, dict[str, list[int]])
    assert str(caught.value) == "[...][1]: Expected `int`, got `str`"
    assert convert([1, 2], tuple[int, ...]) == (1, 2)


def test_unknown_enum_value_is_quoted_and_truncated() -> None:
    def error_of(role: str) -> InferenceError:
        return rejection(GenerationParameters, {"messages": [{"role": role, "content": []}]})

    assert error_of("some").message == "Invalid enum value 'some'; known are assistant, system, user"
    error = error_of("it's " * 1000)
    assert error.path == "inputs[3].parameters.messages[0].role"
    assert error.message.startswith("Invalid enum value \"it's it's ")
    assert len(error.message) < 160


def test_length_of_a_list_in_a_text_is_limited() -> None:
    max_length = 4 * 1024 * 1024
    read = read_parameters(DetectionParameters, {"labels": '["a"]'.ljust(max_length)})
    assert read.labels == ("a",)
    with rejects("at most 4,194,304 characters in a JSON array, got 4,194,305", kind=ErrorKind.TOO_LARGE):
        read_parameters(DetectionParameters, {"labels": '["a"]'.ljust(max_length + 1)})


NUMBERS = Tensor(name="x", datatype=Datatype.FP32, data=np.zeros((2, 3), np.float32))
TEXTS = BytesTensor(name="t", shape=(2,), elements=[StringElement("a")] * 2, parameters={"p": 1})
REQUEST = InferenceRequest(id="i", model_name="m", inputs=(NUMBERS, TEXTS), parameters={"q": 1})


def test_elements_are_counted_over_all_inputs() -> None:
    check_request(REQUEST, Limits(max_elements=8))
    with rejects(
        r"at most 7 tensor elements in one request \(--max-elements\), got 8", "inputs[1]", ErrorKind.TOO_LARGE
    ):
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
        with rejects(r"at most 5 bytes in a name \(--max-name-length\), got 6", path, ErrorKind.TOO_LARGE):
            check_request(request, Limits(max_name_length=5))


def test_parameter_of_an_input_overrides_the_requests_unless_it_is_null() -> None:
    own = msgspec.structs.replace(TEXTS, parameters={"a": "input", "b": None, "c": msgspec.Raw(b"null")})
    shared = {"a": "request", "b": "request", "c": "request", "d": "request"}
    request = msgspec.structs.replace(REQUEST, parameters=shared, inputs=(own,))
    expected = {"a": "input", "b": "request", "c": "request", "d": "request"}
    assert {name: request.parameter(0, name) for name in expected} == expected == request.parameters_of(0)
    assert request.parameter(0, "e") is None


def test_request_parameters_count_once_for_each_input() -> None:
    for parameters, limits, expected in (
        ({"metadata": "abc"}, Limits(max_request_bytes=5), "at most 5 bytes of the request's parameters"),
        ({"metadata": msgspec.Raw(b"123")}, Limits(max_request_bytes=5), "at most 5 bytes of the request's parameters"),
        ({"a": 1, "b": 2}, Limits(max_entries=3), "at most 3 parameters of the request"),
    ):
        check_request(msgspec.structs.replace(REQUEST, parameters=parameters, inputs=(TEXTS,)), limits)
        with rejects(expected, "parameters", ErrorKind.TOO_LARGE):
            check_request(msgspec.structs.replace(REQUEST, parameters=parameters), limits)


def test_long_messages_and_paths_are_truncated() -> None:
    error = invalid("m" * 1_000_000, "p" * 1_000_000).with_prefix("inputs[0]")
    assert error.message == "m" * 2000 + "..."
    assert error.path.startswith("inputs[0].ppp")
    assert len(str(error)) < 3100
    assert error.args == (error.message,)
