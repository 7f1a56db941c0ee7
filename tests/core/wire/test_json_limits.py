"""Test the limits of JSON bodies: at and above each limit, and strings that look like structure."""

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.wire.json_body import check_json, read_json
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tests.support.rejection import rejects

LIMITS = Limits(max_json_depth=4, max_values=6, max_entries=3)


def error_for(body: bytes, limits: Limits = LIMITS) -> InferenceError | None:
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
    assert error_for(body) is None


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
    error = error_for(body)
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
    assert error_for(body, Limits(max_json_depth=max(1, depth(value)))) is None
    if depth(value) > 1:
        assert error_for(body, Limits(max_json_depth=depth(value) - 1)) is not None
    assert error_for(body, Limits(max_entries=members(value), max_json_depth=10**6)) is None
    if members(value):
        assert error_for(body, Limits(max_entries=members(value) - 1)) is not None


@given(st.binary(max_size=300))
def test_any_bytes_are_accepted_or_rejected_with_a_message(body: bytes) -> None:
    error = error_for(body)
    assert error is None or error.message.startswith("Expected ")


def test_limits_apply_across_the_chunks_of_a_long_body() -> None:
    rows = b"[" + b",".join([b"[1,2]"] * 400_000) + b"]"
    assert error_for(rows, Limits()) is None
    assert error_for(rows, Limits(max_values=1_200_001)) is None
    error = error_for(rows, Limits(max_values=1_200_000))
    assert error is not None
    assert "1,200,000 JSON values" in error.message
    # A string that spans two chunks is still one string.
    text = b'["' + b"[" * 3_000_000 + b'"' + b',""' * 200 + b"]"
    assert error_for(text, Limits()) is None


@pytest.mark.parametrize("digits", [4301, 1_000_000])
def test_number_with_too_many_digits_is_rejected(digits: int) -> None:
    for body in (b'{"instances": [%s]}' % (b"1" * digits), b'{"instances": [NaN, %s]}' % (b"1" * digits)):
        with rejects():
            read_json(body, object)
