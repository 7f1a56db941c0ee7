"""Mutators of bytes, regardless of their meaning."""

from collections.abc import Callable, Mapping
from random import Random

Octets = Callable[[bytes, Random], bytes]

_SPECIAL_BYTES = (
    b"\x00",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"%00",
    b'"',
    b"\xed\xa0\x80",
)


def mutate_octets(data: bytes, random: Random) -> bytes:
    """Return `data` after one mutation."""
    return random.choice(list(OCTETS.values()))(data, random)


def _flipped(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _truncated(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))] if data else data


def _without_a_part(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _part_repeated(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 40)) + data[end:]


def _inserted(data: bytes, random: Random) -> bytes:
    index = random.randrange(len(data) + 1)
    added = random.choice((*_SPECIAL_BYTES, random.randbytes(random.randrange(1, 9))))
    return data[:index] + added + data[index:]


def _overwritten(data: bytes, random: Random) -> bytes:
    index = random.randrange(len(data) + 1)
    added = random.choice((*_SPECIAL_BYTES, random.randbytes(4)))
    return data[:index] + added + data[index + len(added) :]


def _swapped(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[end:] + data[start:end] + data[:start]


def _extended(data: bytes, random: Random) -> bytes:
    return data + random.choice((b"\x00", b" ", b"\n{}", data, random.randbytes(random.randrange(1, 64))))


def _emptied(data: bytes, random: Random) -> bytes:
    del data, random
    return b""


def _span(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 4, 16, 200)))


OCTETS: Mapping[str, Octets] = {
    "bits flipped": _flipped,
    "truncated": _truncated,
    "without a part": _without_a_part,
    "part repeated": _part_repeated,
    "inserted": _inserted,
    "overwritten": _overwritten,
    "swapped": _swapped,
    "extended": _extended,
    "emptied": _emptied,
}
"""Mutators, by name."""
