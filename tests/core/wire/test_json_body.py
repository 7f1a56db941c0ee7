"""Test JSON bodies: parsing, and errors with path and reason."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.protocols.chariot_v2_kserve.codec import WireRequest, decode
from app.core.wire.json_body import read_json, read_parameters_object
from tasks.inference.error import ErrorKind, InferenceError
from tests.support.rejection import rejects

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
INPUT_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "name": st.text() | JSON_VALUES,
    "datatype": st.sampled_from(["BYTES", "UINT8", "FP16", "FP32", "BOOL", "INT64"]) | JSON_VALUES,
    "shape": st.lists(st.integers(-2, 4), max_size=4) | JSON_VALUES,
    "data": st.lists(st.integers(-1, 300), max_size=8) | JSON_VALUES,
}
OPTIONAL_FIELDS: dict[str, st.SearchStrategy[Any]] = {"parameters": JSON_VALUES}


def error_for(body: bytes, target: Any = WireRequest, path: str = "") -> InferenceError | None:
    """Return the `InferenceError` for `body`, or None. Any other exception fails the test."""
    try:
        read_json(body, target, path)
    except InferenceError as error:
        return error
    return None


@pytest.mark.parametrize("target", [WireRequest, object, list[str], dict[str, msgspec.Raw], str])
@given(body=st.binary(max_size=60) | st.text(max_size=40).map(str.encode) | JSON_VALUES.map(json.dumps).map(str.encode))
def test_any_bytes_are_read_or_rejected(target: Any, body: bytes) -> None:
    error = error_for(body, target)
    assert error is None or error.kind is ErrorKind.INVALID_REQUEST


@given(st.fixed_dictionaries(INPUT_FIELDS, optional=OPTIONAL_FIELDS))
def test_any_input_is_decoded_or_rejected(wire: dict[str, Any]) -> None:
    body = json.dumps({"inputs": [wire]}).encode()
    try:
        decoded = decode(body, model_name="m", model_version=None, request_id="r")
    except InferenceError as error:
        caught = error
        assert caught.kind is ErrorKind.INVALID_REQUEST
    else:
        assert decoded.inputs[0].name == wire["name"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "an empty body"), (b" \r\n\t", "an empty body"), (b'"\xff"', "UTF-8"), (b"[" * 100_000, ""),
        (b"{", "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"), (b"{'a': 1}", "not valid JSON"), (b"{} {}", "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
    ],
    ids=lambda value: str(value)[:16],
)  # fmt: skip
def test_invalid_json_error_gives_the_reason(body: bytes, message: str) -> None:
    error = error_for(body, object, "body")
    assert error is not None
    assert message in error.message
    assert error.path == "body"


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        (b'{"a": [1, {"b": NaN}]}', "a[1].b", "finite number, got nan"), (b"[[1, Infinity]]", "[0][1]", "got inf"),
        (b'{"a": -Infinity}', "a", "got -inf"), (b"NaN", "", "got nan"),
        (b'{"a": ["x", "\\ud83d"]}', "a[1]", "surrogate"),
        (b'{"a": {"\\udc00": 1}}', "a", "surrogate"),
        (b'{"a": "\\ud83d\\ude00", "b": NaN}', "b", "got nan"),
    ],
)  # fmt: skip
def test_nonfinite_number_or_lone_surrogate_error_names_its_path(body: bytes, path: str, message: str) -> None:
    error = error_for(body, object)
    assert error is not None
    assert (error.path, message in error.message) == (path, True)
    nested_error = error_for(body, object, "x")
    assert nested_error is not None
    assert nested_error.path.startswith("x")


def test_last_value_of_a_duplicate_key_is_used() -> None:
    assert read_json(b'{"inputs": 5, "inputs": []}', object) == {"inputs": []}


def test_parameters_are_decoded_and_metadata_keeps_its_raw_bytes() -> None:
    raw = read_json(b'{"top_k": 5, "metadata": {"a" : 1.10 }, "labels": ["x"]}', dict[str, msgspec.Raw])
    read = read_parameters_object(raw, "parameters")
    assert {name: value for name, value in read.items() if name != "metadata"} == {"top_k": 5, "labels": ["x"]}
    metadata = read["metadata"]
    assert isinstance(metadata, msgspec.Raw)
    assert bytes(metadata) == b'{"a" : 1.10 }'


def test_missing_and_empty_parameters_are_an_empty_dict() -> None:
    assert read_parameters_object(None, "parameters") == {}
    assert read_parameters_object({}, "parameters") == {}


def test_unreadable_parameter_error_names_its_path() -> None:
    with rejects(path="inputs[0].parameters.b"):
        read_parameters_object({"a": msgspec.Raw(b"1"), "b": msgspec.Raw(b"1e999")}, "inputs[0].parameters")
