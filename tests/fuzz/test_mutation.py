"""Mutators: the same request for the same chance, and no other exception than none."""

import base64
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.cases import cases
from fuzz.generation import generated, mutated
from fuzz.mutation.calls import CALLS
from fuzz.mutation.encodings import COMPRESSED, mutated_base64
from fuzz.mutation.framing import FRAMING, http2_bytes
from fuzz.mutation.http import HTTP
from fuzz.mutation.images import IMAGES, jpeg_segments, mutated_image, no_image, png_chunks
from fuzz.mutation.json_values import JSON, Pairs, mutated_json, parsed, written
from fuzz.mutation.octets import OCTETS
from fuzz.mutation.protobuf import Field, mutated_message, read_fields, varint, write_fields
from fuzz.pictures import FORMATS, picture
from fuzz.requests import Bytes, Call, Http, as_wire

CHANCES = st.integers(0, 2**32).map(Random)
NAMED = dict(cases())
JSON_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_every_golden_case_and_every_route_is_there() -> None:
    found = {request.protocol for request in NAMED.values()}
    assert found == {
        "chariot-v2", "chariot-v2-kserve", "grps", "grps-grpc", "kserve-v1", "kserve-v2", "kserve-v2-binary",
        "kserve-v2-grpc", "routes", "tensorflow-serving",
    }  # fmt: skip
    assert len(NAMED) > 500


def test_a_number_of_a_seed_is_always_the_same_request() -> None:
    assert [generated(5, index) for index in range(40)] == [generated(5, index) for index in range(40)]
    assert generated(5, 1) != generated(6, 1)


def test_some_protocols_are_asked_alone() -> None:
    assert {generated(1, index, ("grps",)).request.protocol for index in range(50)} == {"grps"}


def test_nothing_but_the_spare_model_comes_and_goes() -> None:
    for index in range(3000):
        request = generated(8, index, ("routes", "kserve-v2-grpc")).request
        if isinstance(request, Call) and "Unload" in request.method:
            assert not any(name in each for each in request.messages for name in (b"detector", b"half_plus_two"))
        if isinstance(request, Http) and b"/unload" in request.target:
            assert b"/spare/" in request.target


@pytest.mark.parametrize("kind", HTTP)
@given(chance=CHANCES)
@settings(max_examples=15)
def test_requests_stay_requests(kind: str, chance: Random) -> None:
    request = NAMED[chance.choice([name for name, each in NAMED.items() if isinstance(each, Http)])]
    assert isinstance(request, Http)
    changed = HTTP[kind][1](request, chance)
    head, _, body = as_wire(changed).partition(b"\r\n\r\n")
    assert head.startswith(changed.method + b" /")
    if changed.chunks:
        assert head.endswith(b"transfer-encoding: chunked")
        assert body.endswith(b"0\r\n\r\n")
    else:
        assert body == changed.body
        assert not body or head.endswith(b"content-length: %d" % len(body))


@pytest.mark.parametrize("kind", CALLS)
@given(chance=CHANCES)
@settings(max_examples=15)
def test_calls_stay_calls(kind: str, chance: Random) -> None:
    request = NAMED[chance.choice([name for name, each in NAMED.items() if isinstance(each, Call)])]
    assert isinstance(request, Call)
    changed = CALLS[kind][1](request, chance)
    assert changed.streams[0] or len(changed.messages) == 1
    assert changed.method.startswith("/")


@pytest.mark.parametrize("kind", FRAMING)
@given(chance=CHANCES)
@settings(max_examples=10)
def test_broken_framing_is_some_bytes(kind: str, chance: Random) -> None:
    request = NAMED["kserve-v2/tensor-json"]
    assert isinstance(request, Http)
    assert FRAMING[kind](as_wire(request), chance)
    assert http2_bytes(chance).data


@given(JSON_VALUES)
def test_json_is_written_as_it_was_read(value: Any) -> None:
    assert json.loads(written(parsed(json.dumps(value).encode()))) == value


@pytest.mark.parametrize("kind", JSON)
def test_one_place_of_a_document_changes(kind: str) -> None:
    document = parsed(b'{"inputs": [{"name": "a", "shape": [1], "data": ["' + b"QUJD" * 20 + b'"], "score": 0.5}]}')
    before = written(document)
    changes = {written(JSON[kind](document, Random(chance))) for chance in range(20)}
    assert len(changes - {before}) > 1
    assert written(document) == before


def test_a_name_may_come_twice() -> None:
    assert written(Pairs([("a", 1), ("a", 2)])) == b'{"a": 1, "a": 2}'


@given(st.binary(max_size=80), CHANCES)
def test_what_is_no_json_is_left_to_others(data: bytes, chance: Random) -> None:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        assert mutated_json(data, chance) is None


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), st.binary(max_size=20))), st.integers(0, 2**64 - 1))
def test_messages_are_written_as_they_were_read(fields: list[tuple[int, bytes]], number: int) -> None:
    message = [*(Field(each, 2, value) for each, value in fields), Field(7, 0, varint(number)), Field(9, 5, b"abcd")]
    assert read_fields(write_fields(message)) == message


@given(st.binary(max_size=60))
def test_fields_are_read_only_where_they_are_whole(data: bytes) -> None:
    fields = read_fields(data)
    assert fields is None or sum(len(each.value) for each in fields) <= len(data)


@given(CHANCES)
def test_a_message_changes(chance: Random) -> None:
    request = NAMED["grpc/picture"]
    assert isinstance(request, Call)
    changes = {mutated_message(request.messages[0], chance) for _ in range(6)}
    assert changes != {request.messages[0]}


def test_parts_of_pictures_are_found() -> None:
    kinds = [kind for kind, _ in png_chunks(picture("PNG"))]
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    assert [marker for marker, _, _ in jpeg_segments(picture("JPEG"))][-1] == 0xDA


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_picture_can_be_changed(kind: str, file_format: str) -> None:
    changes = {IMAGES[kind](picture(file_format), Random(chance)) for chance in range(12)}
    assert changes != {picture(file_format)}
    for chance in range(12):
        IMAGES[kind](next(iter(changes)), Random(chance))


@given(CHANCES, st.binary(max_size=50))
def test_bytes_stay_bytes(chance: Random, data: bytes) -> None:
    for mutate in OCTETS.values():
        assert isinstance(mutate(data, chance), bytes)
    assert isinstance(mutated_image(chance) + no_image(chance), bytes)


def test_most_base64_is_right() -> None:
    texts = [mutated_base64(b"abcde", Random(chance)) for chance in range(100)]
    assert 40 < texts.count(base64.b64encode(b"abcde").decode()) < 90


@pytest.mark.parametrize("kind", COMPRESSED)
def test_every_encoding_has_its_name(kind: str) -> None:
    encoding, body = COMPRESSED[kind](b"{}", Random(1))
    assert isinstance(encoding, bytes)
    assert len(body) < 200_000


def test_few_requests_stay_as_they_are() -> None:
    request = NAMED["kserve-v2/tensor-json"]
    kinds = [mutated(request, Random(chance))[0] for chance in range(300)]
    assert 1 < kinds.count(("unchanged",)) < 30
    broken = [mutated(request, Random(chance))[1] for chance in range(300)]
    assert 3 < sum(isinstance(each, Bytes) for each in broken) < 60
