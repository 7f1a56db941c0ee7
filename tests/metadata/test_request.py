"""Custom metadata in all its forms; reading it never fails."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.request import InputMetadata, MetadataEntry, metadata_of, output_parameters, read_metadata
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor

ENTRIES = [{"key": "a", "type": "int", "value": "1"}, {"key": "b", "type": "str", "value": "x"}]
READ = [MetadataEntry("a", "int", 1), MetadataEntry("b", "str", "x")]
DOCUMENT = {"standard_metadata": {"latitude": 1.5}, "extended_metadata": ENTRIES}

NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "key": st.text(),
    "type": st.sampled_from(["str", "int", "float", "dict", "bool"]) | JSON_VALUES,
}
MORE_FIELDS: dict[str, st.SearchStrategy[Any]] = {"value": JSON_VALUES | st.text(), "more": JSON_VALUES}
NEAR_MISSES: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries(FIELDS, optional=MORE_FIELDS), max_size=4
)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


FORMS: dict[str, Callable[[object], object]] = {
    "string": json.dumps,
    "value": lambda value: value,
    "raw value": raw,
    "raw string": lambda value: raw(json.dumps(value)),
    "bytes": lambda value: json.dumps(value).encode(),
}


def case_id(value: object) -> str:
    """Return a test id that is the same in every process, unlike the `repr` of a `msgspec.Raw`."""
    return f"Raw {bytes(value)!r}" if isinstance(value, msgspec.Raw) else repr(value)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_both_forms_are_read_in_every_encoding(form: Callable[[object], object]) -> None:
    full, bare = read_metadata(form(DOCUMENT)), read_metadata(form(ENTRIES))
    assert (full.standard, full.entries, full.faults) == ({"latitude": 1.5}, READ, ())
    assert (bare.standard, bare.entries, list(bare.faults)) == ({}, READ, [])


@pytest.mark.parametrize("sections", [{}, {"standard_metadata": {}}, {"extended_metadata": []}, {"other": 1}], ids=str)
def test_sections_may_be_absent(sections: dict[str, object]) -> None:
    read = read_metadata(sections)
    assert (dict(read.standard), list(read.entries), list(read.faults)) == ({}, [], [])


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("str", "1", "1"), ("str", "", ""), ("int", "1", 1), ("int", "-7", -7), ("int", " 7 ", 7), ("int", 5, 5),
        ("int", str(2**80), 2**80), ("float", "0.55", 0.55), ("float", "1e3", 1000.0), ("float", "2", 2.0),
        ("float", 2, 2.0),
        ("float", 2.5, 2.5), ("dict", '{"a": [1]}', {"a": [1]}), ("dict", {"a": 1}, {"a": 1}), ("dict", "{}", {}),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_converted_to_their_type(kind: str, written: object, value: object) -> None:
    read = read_metadata([{"key": "k", "type": kind, "value": written}])
    assert list(read.entries) == [MetadataEntry("k", kind, value)]  # pyright: ignore[reportArgumentType]
    assert type(read.entries[0].value) is type(value)
    assert not read.faults


@pytest.mark.parametrize(
    ("kind", "written", "message"),
    [
        ("str", 1, "expected a string value, got int"), ("str", None, "got null"), ("int", "1.0", "1.0"),
        ("int", 1.0, "expected an integer as a string, got float"), ("int", True, "got bool"), ("int", "", "''"),
        ("int", "9" * 5000, "digits"), ("float", "x", "'x'"), ("float", "nan", "finite"), ("float", "1e999", "finite"),
        ("float", 10**400, "too large"),
        ("float", False, "expected a number as a string, got bool"), ("float", [1], "got list"),
        ("dict", "[1]", "expected an object as a string of JSON, got list"), ("dict", "{", "malformed|truncated"),
        ("dict", 5, "got int"), ("bool", "true", "expected type str, int, float or dict, got 'bool'"),
        ("", "x", "got ''"),
    ],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
def test_invalid_value_is_a_fault_and_other_entries_are_read(kind: str, written: object, message: str) -> None:
    broken = {"key": "k", "type": kind, "value": written}
    read = read_metadata([ENTRIES[0], broken, ENTRIES[1]])
    assert list(read.entries) == READ
    (fault,) = read.faults
    assert fault.startswith("extended_metadata[1]: ")
    assert any(text in fault for text in message.split("|"))


BROKEN: list[object] = [
    {}, {"key": "a"}, {"key": 1, "type": "str", "value": ""}, {"key": "a", "type": 1, "value": ""}, [], "x", 5, None,
]  # fmt: skip
NOT_JSON = ["", "not JSON", "{", "[1,]", msgspec.Raw(b"{"), msgspec.Raw(b'"{"'), b"\xff", "[" * 100_000]
NO_METADATA = [None, 5, True, "5", '"text"', "null", msgspec.Raw(b"null")]


@pytest.mark.parametrize(
    ("value", "start", "entries"),
    [
        *(([broken, *ENTRIES], "extended_metadata[0]: ", READ) for broken in BROKEN),
        *((value, "metadata is not JSON: ", []) for value in NOT_JSON),
        *((value, "metadata: expected an object or a list of entries, got ", []) for value in NO_METADATA),
    ],
    ids=lambda value: case_id(value)[:20],
)
def test_malformed_metadata_or_entry_is_one_fault(value: object, start: str, entries: list[MetadataEntry]) -> None:
    read = read_metadata(value)
    assert list(read.entries) == entries
    assert [fault[: len(start)] for fault in read.faults] == [start]


def test_section_of_another_type_is_a_fault_and_the_other_is_read() -> None:
    read = read_metadata({"standard_metadata": [], "extended_metadata": [5, *ENTRIES]})
    assert list(read.entries) == READ
    faults = ["standard_metadata: expected an object, got list", "extended_metadata[0]: Expected `object`, got `int`"]
    assert list(read.faults) == faults
    read = read_metadata({"standard_metadata": {"a": 1}, "extended_metadata": {}})
    assert dict(read.standard) == {"a": 1}
    assert list(read.faults) == ["extended_metadata: expected a list of entries, got dict"]


@given(JSON_VALUES, st.binary(), st.text())
def test_no_value_or_text_raises(value: object, data: bytes, text: str) -> None:
    for form in (value, json.dumps(value), raw(value), data, msgspec.Raw(data), text):
        assert isinstance(read_metadata(form), InputMetadata)


@given(NEAR_MISSES)
def test_every_entry_is_read_or_is_a_fault(entries: list[dict[str, Any]]) -> None:
    for value in (entries, {"extended_metadata": entries}):
        read = read_metadata(value)
        assert len(read.entries) + len(read.faults) == len(entries)
        msgspec.json.encode(read)


@pytest.mark.parametrize("wrapped", [str, str.encode, raw])
def test_metadata_above_the_size_limit_is_one_fault(wrapped: Callable[[str], object]) -> None:
    read = read_metadata(wrapped("[" + "1," * 5_000_000 + "1]"))
    assert read.entries == ()
    (fault,) = read.faults
    assert fault.startswith("metadata: expected at most 1,048,576 bytes, got 10,000,0")


def test_entries_above_the_limit_are_left_out() -> None:
    items = [{"key": "a", "type": "int", "value": 1}] * 10_001
    read = read_metadata(items)
    assert len(read.entries) == 10_000
    assert read.faults == ["extended_metadata: expected at most 10,000 entries, got 10,001"]


@pytest.mark.parametrize("value", ["{", "", None, 5, {"a": [1]}, [], msgspec.Raw(b'{"a" : 1.0}')], ids=case_id)
def test_metadata_is_returned_as_the_same_object(value: object) -> None:
    parameters = {"action": "predict", "metadata": value, "top_k": 5}
    copied = output_parameters(parameters)
    assert list(parameters) == ["action", "metadata", "top_k"], "those of the input are not changed"
    assert list(copied) == ["metadata"]
    assert copied["metadata"] is value


@pytest.mark.parametrize(
    "parameters", [{}, {"action": "predict"}, {"Metadata": "x"}, {"standard_metadata": {}}], ids=str
)
def test_output_has_no_parameters_without_metadata(parameters: dict[str, object]) -> None:
    assert output_parameters(parameters) == {}


def test_metadata_of_a_request_belongs_to_inputs_without_their_own_and_is_read_once() -> None:
    own, shared = '[{"key": "a", "type": "str", "value": "own"}]', '[{"key": "a", "type": "str", "value": "shared"}]'
    tensors = tuple(
        BytesTensor(name=name, shape=(1,), elements=[], parameters=parameters)
        for name, parameters in {"a": {}, "b": {"metadata": own}, "c": {"metadata": None}}.items()
    )
    request = InferenceRequest(id="", model_name="m", inputs=tensors, parameters={"metadata": shared})
    metadata = metadata_of(request)
    assert [index for index in range(3) if metadata.by_input[index].entries[0].value == "own"] == [1]
    assert metadata.by_input[0] is metadata.by_input[2]
    assert [[read.entries[0].value for read in metadata.of(inputs)] for inputs in (None, [0, 2], [1])] == [
        ["shared", "own"], ["shared"], ["own"],
    ]  # fmt: skip
    assert not metadata_of(msgspec.structs.replace(request, inputs=(), parameters={})).of()
