"""The tags of a TIFF, and of the EXIF data of a JPEG, which are one, read without their values."""

import struct
from collections.abc import Mapping

from tasks.exchange.error import invalid

__all__ = ("check_tags", "is_tiff", "tags")

_STARTS = {b"II*\0": "<", b"MM\0*": ">", b"II+\0": "<", b"MM\0+": ">"}
"""Of TIFF 6.0 and of BigTIFF, whose numbers are twice as long, and what `struct` calls the order of their bytes."""

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of one value of a type (TIFF 6.0, section 2). Decoders pass over the others."""

_SHORT = 3
_MOST_TAGS = 65_535
_SLACK = 1 << 20


def is_tiff(data: bytes) -> bool:
    """Whether `data` begins as a TIFF does."""
    return data[:4] in _STARTS


def tags(data: bytes) -> Mapping[int, int]:
    """The first page's tags, and of each what stands for its value: the first one, if there is but one.

    A tag that comes again does not count, as it does not to libtiff.
    """
    found: dict[int, int] = {}
    for tag, kind, _, value in _entries(data):
        if kind == _SHORT and _STARTS[data[:4]] == ">":
            value >>= 48 if _is_big(data) else 16
        found.setdefault(tag, value & 0xFFFF if kind == _SHORT else value)
    return found


def check_tags(data: bytes) -> None:
    """Refuse a TIFF whose tags hold far more bytes than it has: all may point to the same ones, and each is copied.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    held = sum(_SIZES.get(kind, 0) * count for _, kind, count, _ in _entries(data))
    if held > 2 * len(data) + _SLACK:
        raise invalid(f"The image is a TIFF of {len(data):,} bytes, and its tags say that they hold {held:,}")


def _is_big(data: bytes) -> bool:
    return b"+" in data[2:4]


def _entries(data: bytes) -> list[tuple[int, int, int, int]]:
    """Tag, type, number of values, and the bytes of the value or where it stands; none where that is not told."""
    order, big = _STARTS.get(data[:4]), _is_big(data)
    if order is None or len(data) < 16:
        return []
    (at,) = struct.unpack_from(f"{order}{'Q' if big else 'I'}", data, 8 if big else 4)
    head, entry = struct.Struct(f"{order}{'Q' if big else 'H'}"), struct.Struct(f"{order}HH{'QQ' if big else 'II'}")
    if at + head.size > len(data):
        return []
    (count,) = head.unpack_from(data, at)
    begin = at + head.size
    whole = min(count, _MOST_TAGS, (len(data) - begin) // entry.size)
    return list(entry.iter_unpack(memoryview(data)[begin : begin + whole * entry.size]))
