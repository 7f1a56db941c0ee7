"""Parameters: precedence of layers, rejected values, and the field that an error names."""

from typing import Any

import msgspec
import pytest

from tasks.image_segmentation import SegmentationParameters
from tasks.image_text_to_text import GenerationParameters
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.parameters import extended
from tasks.inference.request import convert, read_parameters
from tasks.object_detection import DetectionParameters
from tasks.token_classification import TokenParameters
from tasks.vision.filtering import SelectionParameters


def rejection(kind: type[Any], parameters: dict[str, object]) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        read_parameters(kind, parameters, path="inputs[3].parameters")
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    return caught.value


def detection(**values: object) -> DetectionParameters:
    """Return parameters with those of plugins, which other tests may have loaded."""
    return extended(DetectionParameters)(**values)


def test_no_parameters_give_the_defaults() -> None:
    assert read_parameters(DetectionParameters) == detection()
    assert read_parameters(DetectionParameters, {}, {}) == detection()


def test_later_layers_override_field_by_field() -> None:
    read = read_parameters(
        DetectionParameters, {"score_threshold": 0.1, "top_k": 5}, {"score_threshold": 0.2}, {"iou_threshold": 0.3}
    )
    assert read == detection(score_threshold=0.2, top_k=5, iou_threshold=0.3)


def test_null_is_like_absent() -> None:
    parameters: dict[str, object] = {"score_threshold": None, "labels": None, "action": None, "iou_threshold": None}
    assert read_parameters(DetectionParameters, parameters) == detection()


def test_unknown_parameters_are_ignored() -> None:
    parameters: dict[str, object] = {"content_type": "np", "metadata": msgspec.Raw(b"{"), "x": object(), "Top_K": "no"}
    assert read_parameters(DetectionParameters, parameters) == detection()


def test_layers_are_not_changed() -> None:
    first: dict[str, object] = {"top_k": 1}
    read_parameters(DetectionParameters, first, {"top_k": 2, "labels": "[]"})
    assert first == {"top_k": 1}


@pytest.mark.parametrize("number", [0, 1])
def test_integer_is_accepted_as_a_fraction(number: int) -> None:
    assert read_parameters(SelectionParameters, {"score_threshold": number}).score_threshold == number


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


@pytest.mark.parametrize("value", ["0.5", True, [0.5], {"a": 1}, -0.0001, 1.0001, 10**400, "", "NaN"], ids=repr)
@pytest.mark.parametrize("name", ["score_threshold", "iou_threshold"])
def test_invalid_fractions_are_rejected(name: str, value: object) -> None:
    assert rejection(DetectionParameters, {name: value}).path == f"inputs[3].parameters.{name}"


@pytest.mark.parametrize("value", ["5", True, 0, -1, 1.5, [1], -(10**400)], ids=repr)
@pytest.mark.parametrize("name", ["top_k", "max_new_tokens"])
def test_invalid_counts_are_rejected(name: str, value: object) -> None:
    assert rejection(GenerationParameters, {name: value}).path == f"inputs[3].parameters.{name}"


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


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"labels": 5}, "labels"), ({"labels": {"a": 1}}, "labels"), ({"labels": ["a", 5]}, "labels[1]"),
        ({"labels": ["a", None]}, "labels[1]"), ({"labels": '["a", 5]'}, "labels[1]"), ({"labels": "[a]"}, "labels"),
        ({"labels": '["a"] x'}, "labels"), ({"labels": [["a"]]}, "labels[0]"), ({"action": 5}, "action"),
        ({"action": ["predict"]}, "action"),
    ],
    ids=str,
)  # fmt: skip
def test_invalid_texts_and_lists_are_rejected(parameters: dict[str, object], path: str) -> None:
    assert rejection(SelectionParameters, parameters).path == f"inputs[3].parameters.{path}"


def test_list_that_is_not_json_is_rejected() -> None:
    error = rejection(GenerationParameters, {"prompts": "[what is this?"})
    assert error.message.startswith("Expected a JSON array of strings, got text that is not JSON")


@pytest.mark.parametrize(
    "parameters", [{"temperature": -0.1}, {"temperature": "0"}, {"seed": -1}, {"seed": 1.0}, {"top_p": 2}]
)
def test_error_for_generation_parameters_names_the_field(parameters: dict[str, object]) -> None:
    assert rejection(GenerationParameters, parameters).path == f"inputs[3].parameters.{next(iter(parameters))}"


@pytest.mark.parametrize("epsilon", [-0.5, "1", True, [1]])
def test_invalid_epsilon_is_rejected(epsilon: object) -> None:
    assert rejection(SegmentationParameters, {"epsilon": epsilon}).path == "inputs[3].parameters.epsilon"


def test_convert_names_the_field_without_a_prefix() -> None:
    with pytest.raises(InferenceError) as caught:
        convert({"a": [1, "x"]}, dict[str, list[int]])
    assert str(caught.value) == "[...][1]: Expected `int`, got `str`"
    assert convert([1, 2], tuple[int, ...]) == (1, 2)


def test_null_keeps_the_value_of_the_layer_below() -> None:
    read = read_parameters(DetectionParameters, {"score_threshold": 0.9}, {"score_threshold": None})
    assert read.score_threshold == 0.9


def test_unknown_enum_value_is_quoted_and_truncated() -> None:
    assert rejection(TokenParameters, {"aggregation_strategy": "some"}).message == "Invalid enum value 'some'"
    error = rejection(TokenParameters, {"aggregation_strategy": "it's " * 1000})
    assert error.path == "inputs[3].parameters.aggregation_strategy"
    assert error.message.startswith("Invalid enum value \"it's it's ")
    assert len(error.message) < 120


def test_length_of_a_list_in_a_text_is_limited() -> None:
    max_length = 4 * 1024 * 1024
    read = read_parameters(DetectionParameters, {"labels": '["a"]'.ljust(max_length)})
    assert read.labels == ("a",)
    with pytest.raises(InferenceError, match="at most 4,194,304 characters in a JSON array, got 4,194,305") as caught:
        read_parameters(DetectionParameters, {"labels": '["a"]'.ljust(max_length + 1)})
    assert caught.value.kind is ErrorKind.TOO_LARGE
