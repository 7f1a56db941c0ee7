"""Test the limits of gRPC messages, which are checked before parsing."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from app.core.proto import message_class
from app.core.protocols.kserve_v2.protobuf import InferRequest, read_message
from app.core.wire.protobuf_limits import check_message, parse_message
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits

Request: Any = message_class("inference.ModelInferRequest")
LIMITS = Limits(max_entries=10, max_elements=8)


def length_delimited(tag: int, content: bytes) -> bytes:
    """Encode a length-delimited field."""
    size, length = bytearray(), len(content)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes([tag << 3 | 2]) + bytes(size) + content


def error_for(data: bytes, limits: Limits = LIMITS, message_type: Any = Request) -> str:
    try:
        check_message(data, message_type.DESCRIPTOR, limits)
    except InferenceError as error:
        return error.message if error.kind is ErrorKind.TOO_LARGE else f"{error.kind}: {error}"
    return ""


INPUTS, CONTENTS, PARAMETERS, RAW = 5, 5, 4, 7
BOMBS = {
    "inputs": length_delimited(INPUTS, b""),
    "parameters": length_delimited(PARAMETERS, b""),
    "raw contents": length_delimited(RAW, b""),
    "unknown fields": length_delimited(15, b""),
    "unknown groups": b"\x7b\x7c",
    "unknown numbers": b"\x78\x01",
}


@pytest.mark.parametrize("field", BOMBS.values(), ids=BOMBS)
def test_fields_of_every_kind_are_counted(field: bytes) -> None:
    assert error_for(field * 10, Limits(max_entries=20)) == ""
    assert (
        error_for(field * 21, Limits(max_entries=20))
        == "Expected at most 20 fields in one message (--max-entries), got more"
    )


def test_fields_of_nested_messages_are_counted() -> None:
    nested = length_delimited(INPUTS, length_delimited(CONTENTS, length_delimited(8, b"") * 8))
    assert error_for(nested, Limits(max_entries=10, max_elements=1)) == ""
    assert "at most 9 fields" in error_for(nested, Limits(max_entries=9, max_elements=1))
    # Fields after a group are counted too.
    assert "at most 9 fields" in error_for(b"\x7b\x7c" + nested, Limits(max_entries=9, max_elements=1))


@pytest.mark.parametrize(
    ("field", "encoded_number"),
    [(1, b"\1"), (2, b"\xff" * 9 + b"\1"), (3, b"\1"), (4, b"\x80\1"), (6, b"\0" * 4), (7, b"\0" * 8)],
)
def test_packed_numbers_are_counted_as_elements(field: int, encoded_number: bytes) -> None:
    for count, rejected in ((8, False), (9, True)):
        data = length_delimited(INPUTS, length_delimited(CONTENTS, length_delimited(field, encoded_number * count)))
        Request.FromString(data)
        assert bool(error_for(data)) == rejected
    assert error_for(data) == "Expected at most 8 tensor elements in one body (--max-elements), got 9"


def test_numbers_that_are_missing_are_left_to_the_parser() -> None:
    numbers = length_delimited(6, b"\0" * 4 * 9)
    cut = length_delimited(INPUTS, length_delimited(CONTENTS, numbers[:-4]))
    # A number without an end, and one of more than 64 bits.
    for data in (cut, b"\x80", b"\x08" + b"\xff" * 11):
        assert error_for(data) == ""
        with pytest.raises(DecodeError):
            Request.FromString(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_accepted_or_rejected(data: bytes) -> None:
    error = error_for(data)
    assert not error or error.startswith("Expected at most ")


TENSORS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": st.text(max_size=2),
        "shape": st.lists(st.integers(-1, 2**40), max_size=4),
        "contents": st.fixed_dictionaries(
            {},
            optional={
                "int64_contents": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6),
                "bool_contents": st.lists(st.booleans(), min_size=1, max_size=6),
                "fp32_contents": st.lists(st.just(1.0), min_size=1, max_size=6),
                "bytes_contents": st.lists(st.binary(max_size=3), min_size=1, max_size=6),
            },
        ),
    }
)


@given(st.lists(TENSORS, min_size=1, max_size=5), st.lists(st.binary(max_size=4), max_size=5))
def test_fields_and_numbers_are_counted_as_serialized(inputs: list[dict[str, Any]], raw: list[bytes]) -> None:
    fields, numbers = len(raw), 0
    for tensor in inputs:
        contents = tensor["contents"]
        texts = contents.get("bytes_contents", [])
        packed = [tensor["shape"], *(contents[name] for name in contents if name != "bytes_contents")]
        fields += 2 + bool(tensor["name"]) + len(texts) + sum(map(bool, packed))
        numbers += sum(map(len, packed))
    data = Request(inputs=inputs, raw_input_contents=raw).SerializeToString()
    assert error_for(data, Limits(max_entries=fields, max_elements=max(1, numbers))) == ""
    # Each limit is checked: one less of either is rejected.
    if numbers > 1:
        assert error_for(data, Limits(max_entries=fields, max_elements=numbers - 1)) != ""
    if fields > 1 and len(data) > numbers + 1:
        assert error_for(data, Limits(max_entries=fields - 1, max_elements=numbers + 1)) != ""


def test_limits_are_checked_before_parsing() -> None:
    bomb = length_delimited(INPUTS, b"") * 200_000
    with pytest.raises(InferenceError, match="at most 100,000 fields"):
        parse_message(InferRequest, bomb, Limits())
    with pytest.raises(InferenceError, match="at most 65,536 bytes in a RepositoryModelLoadRequest, got 200,000"):
        read_message("RepositoryModelLoadRequest", length_delimited(3, b"") * 100_000)
