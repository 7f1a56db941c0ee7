"""Mutators of fields of serialized messages, with protobuf's wire format only, without descriptors."""

import struct
from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec

from tests.fuzz.mutation.images import invalid_image, mutate_image
from tests.fuzz.mutation.octets import mutate_octets

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_NUMBERS = (0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"BYTES",
    b"FP32",
    b"INT64",
    b"BF16",
    b"detector",
    b"half_plus_two",
    b"missing",
    b"a" * 9000,
    b"\xed\xa0\x80",
)
_OVERLONG = b"\xff" * 9 + b"\x7f"


class Field(msgspec.Struct, frozen=True):
    """A field: its number, wire type, and encoded value without length."""

    number: int
    kind: int
    value: bytes


def varint(number: int) -> bytes:
    """Encode a number of up to 64 bits."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_fields(data: bytes) -> list[Field] | None:
    """Return the fields of a message; None if the bytes are not a message."""
    fields: list[Field] = []
    at = 0
    while at < len(data):
        if (tag := _read_varint(data, at)) is None:
            return None
        key, at = tag
        kind, start = key & 7, at
        if key >> 3 == 0 or kind not in (_VARINT, _FIXED64, _LENGTH, _FIXED32):
            return None
        if kind in (_VARINT, _LENGTH):
            if (read := _read_varint(data, at)) is None:
                return None
            size, at = read
            start = at if kind == _LENGTH else start
            at += size if kind == _LENGTH else 0
        else:
            at += 8 if kind == _FIXED64 else 4
        if at > len(data):
            return None
        fields.append(Field(key >> 3, kind, data[start:at]))
    return fields


def write_fields(fields: Sequence[Field]) -> bytes:
    """Serialize fields."""
    return b"".join(
        varint(field.number << 3 | field.kind)
        + (varint(len(field.value)) if field.kind == _LENGTH else b"")
        + field.value
        for field in fields
    )


def mutate_message(data: bytes, random: Random, depth: int = 0) -> bytes:
    """Mutate one field at any depth, or the bytes if there are no fields."""
    fields = read_fields(data)
    if not fields:
        return mutate_octets(data, random)
    index = random.randrange(len(fields))
    if fields[index].kind == _LENGTH and depth < 6 and random.random() < 0.6 and read_fields(fields[index].value):
        inner = mutate_message(fields[index].value, random, depth + 1)
        return write_fields(
            [*fields[:index], msgspec.structs.replace(fields[index], value=inner), *fields[index + 1 :]]
        )
    return random.choice(list(PROTOBUF.values()))(fields, index, random)


def _read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    number = shift = 0
    while at < len(data) and shift < 70:
        number |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return number, at
        shift += 7
    return None


def _dropped(fields: list[Field], index: int, random: Random) -> bytes:
    del random
    return write_fields([*fields[:index], *fields[index + 1 :]])


def _repeated(fields: list[Field], index: int, random: Random) -> bytes:
    return write_fields([*fields, *[fields[index]] * random.choice((1, 2, 300))])


def _moved(fields: list[Field], index: int, random: Random) -> bytes:
    del index
    return write_fields(random.sample(fields, len(fields)))


def _renumbered(fields: list[Field], index: int, random: Random) -> bytes:
    number = random.choice((*range(1, 12), 100, 2**29 - 1))
    return write_fields(_replaced(fields, index, Field(number, fields[index].kind, fields[index].value)))


def _retyped(fields: list[Field], index: int, random: Random) -> bytes:
    value = random.choice(
        (Field(0, _VARINT, varint(random.choice(_NUMBERS))), Field(0, _FIXED32, random.randbytes(4)),
         Field(0, _FIXED64, struct.pack("<d", random.choice((float("nan"), float("inf"), -1e308, 0.5)))),
         Field(0, _LENGTH, random.choice(_TEXTS)))
    )  # fmt: skip
    return write_fields(_replaced(fields, index, Field(fields[index].number, value.kind, value.value)))


def _another_value(fields: list[Field], index: int, random: Random) -> bytes:
    old = fields[index]
    match old.kind:
        case 0:
            value = varint(random.choice(_NUMBERS))
        case 2:
            value = random.choice((random.choice(_TEXTS), mutate_octets(old.value, random), old.value * 2))
        case _:
            value = random.randbytes(len(old.value))
    return write_fields(_replaced(fields, index, Field(old.number, old.kind, value)))


def _replace_by_image(fields: list[Field], index: int, random: Random) -> bytes:
    """Replace a field by an image."""
    image = random.choice((mutate_image, invalid_image))(random)
    if random.random() < 0.3:
        image = struct.pack("<I", random.choice((len(image), len(image) + 1, 2**32 - 1))) + image
    longest = max(range(len(fields)), key=lambda index: len(fields[index].value))
    at = random.choice((index, longest, longest))
    return write_fields(_replaced(fields, at, Field(fields[at].number, _LENGTH, image)))


def _overlong(fields: list[Field], index: int, random: Random) -> bytes:
    del random
    before, after = write_fields(fields[:index]), write_fields(fields[index + 1 :])
    return before + varint(fields[index].number << 3 | _VARINT) + _OVERLONG + after


def _wrong_length(fields: list[Field], index: int, random: Random) -> bytes:
    old = fields[index]
    length = random.choice((len(old.value) + 1, max(len(old.value) - 1, 0), 2**31 - 1, 2**32, 2**63))
    before, after = write_fields(fields[:index]), write_fields(fields[index + 1 :])
    return before + varint(old.number << 3 | _LENGTH) + varint(length) + old.value + after


def _deep(fields: list[Field], index: int, random: Random) -> bytes:
    """Nest the message in itself; protobuf readers stop at depth 100."""
    data = write_fields(fields)
    for _ in range(random.choice((1, 3, 99, 101, 2000))):
        data = write_fields([Field(fields[index].number, _LENGTH, data[-20_000:])])
    return data


def _group(fields: list[Field], index: int, random: Random) -> bytes:
    start_group = varint(fields[index].number << 3 | 3) * random.choice((1, 1, 150))
    return write_fields(fields) + start_group + random.choice((b"", varint(fields[index].number << 3 | 4)))


def _octets(fields: list[Field], index: int, random: Random) -> bytes:
    del index
    return mutate_octets(write_fields(fields), random)


def _replaced(fields: list[Field], index: int, field: Field) -> list[Field]:
    return [*fields[:index], field, *fields[index + 1 :]]


PROTOBUF: Mapping[str, Callable[[list[Field], int, Random], bytes]] = {
    "dropped": _dropped,
    "repeated": _repeated,
    "moved": _moved,
    "renumbered": _renumbered,
    "retyped": _retyped,
    "another value": _another_value,
    "image": _replace_by_image,
    "overlong varint": _overlong,
    "lying length": _wrong_length,
    "deep": _deep,
    "group": _group,
    "octets": _octets,
}
"""Mutators of the field at an index, by name."""
