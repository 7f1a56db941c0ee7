"""Test JSON bodies: parsing, errors with path and reason, and limits, also for strings that look like structure."""

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.protocols.chariot_v2_kserve import WireRequest, decode
from app.core.protocols.inference_call import RequestHead
from app.core.wire.json_body import check_json, read_json, read_parameters_object
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tests.core.engine.engines import new_context
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


@given(
    st.sampled_from([WireRequest, object, list[str], dict[str, msgspec.Raw], str]),
    st.binary(max_size=60) | st.text(max_size=40).map(str.encode) | JSON_VALUES.map(json.dumps).map(str.encode),
)
@settings(max_examples=200)
def test_any_bytes_are_read_or_rejected(target: Any, body: bytes) -> None:
    error = error_for(body, target)
    assert error is None or error.kind is ErrorKind.INVALID_REQUEST


@given(st.fixed_dictionaries(INPUT_FIELDS, optional=OPTIONAL_FIELDS))
def test_any_input_is_decoded_or_rejected(wire: dict[str, Any]) -> None:
    body = json.dumps({"inputs": [wire]}).encode()
    try:
        decoded = decode(RequestHead(target="m", headers={}), body, new_context())
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


LIMITS = Limits(max_json_depth=4, max_values=6, max_entries=3)


def limit_error(body: bytes, limits: Limits = LIMITS) -> InferenceError | None:
    try:
        check_json(body, limits, "here")
    except InferenceError as error:
        return error
    return None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[[[[1]]]]",
        b'{"a": {"b": {"c": {}}}}',
        b"[1, 2, 3, 4, 5]",
        b'{"a": 1, "b": 2, "c": 3}',
        b'"[[[[[[[[{{{{{{{{"',
        b'"\\"[[[[[[[[[["',
        b'"\\\\\\"[[[[[[[[[["',
        b'["a,b,c,d,e,f,g,h"]',
        b'["a:b:c:d:e:f:g:h"]',
        b"[],[],[]",
    ],
)
def test_body_at_a_limit_is_accepted(body: bytes) -> None:
    assert limit_error(body) is None


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"[[[[[1]]]]]", ErrorKind.INVALID_REQUEST, "Expected JSON nested 4 deep at most"),
        (b"[[[[[", ErrorKind.INVALID_REQUEST, "4 deep"),
        (b'{"a": [{"b": [[]]}]}', ErrorKind.INVALID_REQUEST, "4 deep"),
        (b'["\\\\", [[[[1]]]]]', ErrorKind.INVALID_REQUEST, "4 deep"),
        (b"[1,2,3,4,5,6]", ErrorKind.TOO_LARGE, "at most 6 JSON values"),
        (b'{"a":1,"b":2,"c":3,"d":4}', ErrorKind.TOO_LARGE, "at most 3 members"),
    ],
)
def test_body_above_a_limit_is_rejected(body: bytes, kind: ErrorKind, message: str) -> None:
    error = limit_error(body)
    assert error is not None
    assert (error.kind, error.path) == (kind, "here")
    assert message in error.message


def children(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def depth(value: object) -> int:
    return int(isinstance(value, dict | list)) + max(map(depth, children(value)), default=0)


def members(value: object) -> int:
    return len(children(value)) * isinstance(value, dict) + sum(map(members, children(value)))


TEXTS = st.text(alphabet='ab"\\[]{}:, \n', max_size=6)
VALUES = st.recursive(
    st.integers() | TEXTS, lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3)
)


@given(VALUES)
def test_depth_and_members_are_counted_as_in_the_parsed_value(value: object) -> None:
    body = json.dumps(value).encode()
    assert limit_error(body, Limits(max_json_depth=max(1, depth(value)))) is None
    if depth(value) > 1:
        assert limit_error(body, Limits(max_json_depth=depth(value) - 1)) is not None
    assert limit_error(body, Limits(max_entries=members(value), max_json_depth=10**6)) is None
    if members(value):
        assert limit_error(body, Limits(max_entries=members(value) - 1)) is not None


@given(st.binary(max_size=300))
def test_any_bytes_are_accepted_or_rejected_with_a_message(body: bytes) -> None:
    error = limit_error(body)
    assert error is None or error.message.startswith("Expected ")


def test_limits_apply_across_the_chunks_of_a_long_body() -> None:
    rows = b"[" + b",".join([b"[1,2]"] * 400_000) + b"]"
    assert limit_error(rows, Limits()) is None
    assert limit_error(rows, Limits(max_values=1_200_001)) is None
    error = limit_error(rows, Limits(max_values=1_200_000))
    assert error is not None
    assert "1,200,000 JSON values" in error.message
    # A string that spans two chunks is still one string.
    text = b'["' + b"[" * 3_000_000 + b'"' + b',""' * 200 + b"]"
    assert limit_error(text, Limits()) is None


@pytest.mark.parametrize("digits", [4301, 1_000_000])
def test_number_with_too_many_digits_is_rejected(digits: int) -> None:
    for body in (b'{"instances": [%s]}' % (b"1" * digits), b'{"instances": [NaN, %s]}' % (b"1" * digits)):
        with rejects():
            read_json(body, object)
