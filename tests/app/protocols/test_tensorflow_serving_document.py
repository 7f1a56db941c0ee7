"""Test that JSON is read like in RapidJSON, and that messages quote values like RapidJSON."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.tensorflow_serving.document import debug_text, read_object, type_name
from tasks.inference.error import InferenceError

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
        (b"", "JSON Parse error: The document is empty"),
        (b"  ", "JSON Parse error: The document is empty. at offset: 2"),
        (b"nul", "JSON Parse error: Invalid value. at offset: 0"),
        (b'{"a": nul}', "JSON Parse error: Invalid value. at offset: 6"),
        (b'{"a": }', "JSON Parse error: Invalid value. at offset: 6"),
        (b"{a: 1}", "JSON Parse error: Missing a name for object member. at offset: 1"),
        (b'{"a" 1}', "JSON Parse error: Missing a colon after a name of object member. at offset: 5"),
        (b'{"a": [1 2]}', "JSON Parse error: Missing a comma or ] after an array element. at offset: 9"),
        (b'{"a": 1 "b": 2}', "JSON Parse error: Missing a comma or } after an object member. at offset: 8"),
        (b'{"a[": {"b": 1 2}}', "JSON Parse error: Missing a comma or } after an object member. at offset: 15"),
        (b'{"a": [{}, [1], 2', "JSON Parse error: Missing a comma or ] after an array element. at offset: 17"),
        (b'{"a": "b', "JSON Parse error: Missing a closing quotation mark in string. at offset: 6"),
        (b'{"a": "\\x"}', "JSON Parse error: Invalid escape character in string. at offset: 7"),
        (b'{"a": "\\u12G4"}', "JSON Parse error: Incorrect hex digit after \\u escape in string. at offset: 8"),
        (b'{"a": "\n"}', "JSON Parse error: Invalid encoding in string. at offset: 7"),
        (b'{"a": "\xff"}', "JSON Parse error: Invalid encoding in string. at offset: 7"),
        ('{"é": nul}'.encode(), "JSON Parse error: Invalid value. at offset: 7"),
        (b'{"a": "\\ud800"}', "JSON Parse error: The surrogate pair in string is invalid. at: a"),
        (b'{"a": 1e999}', "JSON Parse error: Number too big to be stored in double. at offset: 6"),
        (
            b'{"a": NaN, "b": ' + b"9" * 400 + b"}",
            "JSON Parse error: Number too big to be stored in double. at offset: 16",
        ),
        (b'{"a": ' + b"[" * 100_000, "JSON Parse error: Arrays or objects are nested too deeply"),
        (b"[1, 2]", "JSON Value: [1, 2] Is not object"),
        (b'"text"', 'JSON Value: "text" Is not object'),
        (b"null", "JSON Value: null Is not object"),
    ],
)
def test_parse_errors_match_tensorflow_serving(body: bytes, message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read_object(body)
    assert str(caught.value) == message


@given(VALUES)
def test_quoted_value_is_its_json_cut_to_256_characters(value: object) -> None:
    text = debug_text(value)
    assert len(text) <= 256
    if len(text) < 256:
        assert json.loads(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ([], "[]"),
        ([1, [2.0, "a"]], '[1, [2.0, "a"]]'),
        ({"a": {"b": [1]}, "c": None}, '{\n    "a": {\n        "b": [1]\n    },\n    "c": null\n}'),
        ("é" * 1000, '"' + "é" * 255),
        ([[0] * 1000], "[[" + ("0, " * 1000)[:254]),
    ],
)
def test_objects_are_quoted_on_several_lines_and_arrays_on_one_line(value: object, text: str) -> None:
    assert debug_text(value) == text


def test_deeply_nested_value_is_quoted_only_in_part() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert debug_text(nested) == "[" * 256


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "Null"),
        (True, "True"),
        (False, "False"),
        (1, "Number"),
        (1.5, "Number"),
        ("a", "String"),
        ([], "Array"),
        ({}, "Object"),
    ],
)
def test_type_names_match_rapidjson(value: object, name: str) -> None:
    assert type_name(value) == name
