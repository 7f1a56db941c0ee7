"""Test that JSON is read as leniently as by the real server."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.tensorflow_serving.document import read_object
from tasks.inference.error import ErrorKind, InferenceError

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_json_of_the_standard_library_is_read(document: dict[str, object]) -> None:
    assert read_object(json.dumps(document).encode()) == document


def test_nan_and_infinity_are_read() -> None:
    numbers: Any = read_object(b'{"a": [NaN, Infinity, -Infinity]}')["a"]
    assert math.isnan(numbers[0])
    assert numbers[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize("trailing", [b"", b"X", b"}", b"\n{}", b" \xff"])
def test_data_after_the_first_value_is_ignored(trailing: bytes) -> None:
    assert read_object(b'{"a": 1}' + trailing) == {"a": 1}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON Parse error: Expecting value: line 1 column 1 (char 0)"),
        (b"  ", "JSON Parse error: Expecting value"),
        (b'{"a": nul}', "JSON Parse error: Expecting value: line 1 column 7 (char 6)"),
        (b"{a: 1}", "JSON Parse error: Expecting property name"),
        (b'{"a": [1 2]}', "JSON Parse error: Expecting ',' delimiter: line 1 column 10 (char 9)"),
        (b'{"a": "b', "JSON Parse error: Unterminated string"),
        (b'{"a": "\xff"}', "JSON Parse error: 'utf-8' codec can't encode"),
        (b'{"a": "\\ud800"}', "JSON Parse error: 'utf-8' codec can't encode"),
        (b'{"a\\ud800": 1}', "JSON Parse error: 'utf-8' codec can't encode"),
        (b'{"a": 1e999}', "JSON Parse error: Number too big to be stored in double."),
        (b'{"a": NaN, "b": ' + b"9" * 5000 + b"}", "JSON Parse error: Number too big to be stored in double."),
        (b'{"a": ' + b"[" * 100_000, "JSON Parse error: maximum recursion depth exceeded"),
        (b"[1, 2]", "JSON Value: [1, 2] Is not object"),
        (b'"text"', "JSON Value: 'text' Is not object"),
        (b"null", "JSON Value: None Is not object"),
    ],
)
def test_invalid_body_is_rejected_with_the_reason(body: bytes, message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read_object(body)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    assert str(caught.value).startswith(message)
