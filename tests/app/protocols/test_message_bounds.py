"""How much there may be in a gRPC message, told before it is parsed."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from app.proto import message_class
from app.protocols.grps.messages import GrpsMessage
from app.protocols.grps.messages import read_message as read_grps
from app.protocols.kserve_v2.plain_messages import RepositoryModel, read_message
from app.protocols.kserve_v2.protobuf import InferMessage
from app.protocols.message_bounds import check_message
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits

Request: Any = message_class("inference.ModelInferRequest")
FEW = Limits(max_entries=10, max_elements=8)


def within(tag: int, content: bytes) -> bytes:
    """A field of a length."""
    size, length = bytearray(), len(content)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes([tag << 3 | 2]) + bytes(size) + content


def refusal(data: bytes, limits: Limits = FEW, of: Any = Request) -> str:
    try:
        check_message(data, of.DESCRIPTOR, limits)
    except InferenceError as error:
        return error.message if error.kind is ErrorKind.TOO_LARGE else f"{error.kind}: {error}"
    return ""


INPUTS, CONTENTS, PARAMETERS, RAW = 5, 5, 4, 7
BOMBS = {
    "inputs": within(INPUTS, b""),
    "parameters": within(PARAMETERS, b""),
    "raw contents": within(RAW, b""),
    "unknown fields": within(15, b""),
    "unknown groups": b"\x7b\x7c",
    "unknown numbers": b"\x78\x01",
}


@pytest.mark.parametrize("field", BOMBS.values(), ids=BOMBS)
def test_fields_are_counted_whatever_they_are(field: bytes) -> None:
    assert refusal(field * 10, Limits(max_entries=20)) == ""
    assert refusal(field * 21, Limits(max_entries=20)) == "Expected at most 20 fields in one message, got more"


def test_fields_of_messages_within_count_with_the_others() -> None:
    inner = within(INPUTS, within(CONTENTS, within(8, b"") * 8))
    assert refusal(inner, Limits(max_entries=10, max_elements=1)) == ""
    assert "at most 9 fields" in refusal(inner, Limits(max_entries=9, max_elements=1))
    # What stands behind a group is not overlooked.
    assert "at most 9 fields" in refusal(b"\x7b\x7c" + inner, Limits(max_entries=9, max_elements=1))


@pytest.mark.parametrize(
    ("field", "one"),
    [(1, b"\1"), (2, b"\xff" * 9 + b"\1"), (3, b"\1"), (4, b"\x80\1"), (6, b"\0" * 4), (7, b"\0" * 8)],
)
def test_packed_numbers_are_elements(field: int, one: bytes) -> None:
    for count, refused in ((8, False), (9, True)):
        data = within(INPUTS, within(CONTENTS, within(field, one * count)))
        Request.FromString(data)
        assert bool(refusal(data)) == refused
    assert refusal(data) == "Expected at most 8 tensor elements in one request, got 9"


@given(st.binary(max_size=400))
def test_any_bytes_are_looked_at_in_the_end(data: bytes) -> None:
    refusal(data)
    refusal(data, of=GrpsMessage)


@given(st.binary(max_size=60), st.sampled_from([Request, GrpsMessage]))
def test_what_the_parser_takes_was_counted(data: bytes, of: Any) -> None:
    try:
        message = of.FromString(data)
    except DecodeError:
        return
    counted = sum(1 for _ in message.ListFields())
    if counted > 1:
        assert refusal(data, Limits(max_entries=counted - 1, max_elements=1), of)


PLACED: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
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


@given(st.lists(PLACED, min_size=1, max_size=5), st.lists(st.binary(max_size=4), max_size=5))
def test_fields_and_numbers_are_counted_as_they_are_written(inputs: list[dict[str, Any]], raw: list[bytes]) -> None:
    fields, numbers = len(raw), 0
    for each in inputs:
        contents = each["contents"]
        texts = contents.get("bytes_contents", [])
        packed = [each["shape"], *(contents[name] for name in contents if name != "bytes_contents")]
        fields += 2 + bool(each["name"]) + len(texts) + sum(map(bool, packed))
        numbers += sum(map(len, packed))
    data = Request(inputs=inputs, raw_input_contents=raw).SerializeToString()
    assert refusal(data, Limits(max_entries=fields, max_elements=max(1, numbers))) == ""
    # One fewer of the other makes sure that it is looked at.
    if numbers > 1:
        assert refusal(data, Limits(max_entries=fields, max_elements=numbers - 1)) != ""
    if fields > 1 and len(data) > numbers + 1:
        assert refusal(data, Limits(max_entries=fields - 1, max_elements=numbers + 1)) != ""


def test_both_services_look_before_they_parse() -> None:
    bomb = within(INPUTS, b"") * 200_000
    with pytest.raises(InferenceError, match="at most 100,000 fields"):
        InferMessage(bomb, Limits())
    with pytest.raises(InferenceError, match="at most 100,000 fields"):
        read_grps(within(3, within(1, b"")) * 100_001, Limits())
    with pytest.raises(InferenceError, match="at most 65,536 bytes in a RepositoryModelLoadRequest, got 200,000"):
        read_message("RepositoryModelLoadRequest", within(3, b"") * 100_000, RepositoryModel)
