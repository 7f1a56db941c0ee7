"""Read the tags of a TIFF, or of the EXIF data of a JPEG (which are a TIFF), without their values."""

import struct
from collections.abc import Mapping

from tasks.exchange.error import invalid

__all__ = ("check_tags", "is_tiff", "tags")

_STARTS = {b"II*\0": "<", b"MM\0*": ">", b"II+\0": "<", b"MM\0+": ">"}
"""The first bytes of TIFF 6.0 and BigTIFF, with the byte order for `struct`. Numbers of BigTIFF are twice as long."""

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of one value by type (TIFF 6.0, section 2). Decoders skip other types."""

_SHORT = 3
_MAX_TAGS = 65_535
_SLACK = 1 << 20


def is_tiff(data: bytes) -> bool:
    """Return whether `data` starts with a TIFF header."""
    return data[:4] in _STARTS


def tags(data: bytes) -> Mapping[int, int]:
    """Return the tags of the first page, each with its value, or with the offset of its values if they do not fit.

    If a tag is repeated, the first one counts, as in libtiff.
    """
    found: dict[int, int] = {}
    for tag, kind, _, value in _entries(data):
        if kind == _SHORT and _STARTS[data[:4]] == ">":
            value >>= 48 if _is_big(data) else 16
        found.setdefault(tag, value & 0xFFFF if kind == _SHORT else value)
    return found


def check_tags(data: bytes) -> None:
    """Reject a TIFF whose tags declare far more bytes than the file has: decoders copy shared bytes for each tag.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    held = sum(_SIZES.get(kind, 0) * count for _, kind, count, _ in _entries(data))
    if held > 2 * len(data) + _SLACK:
        raise invalid(f"The image is a TIFF of {len(data):,} bytes, and its tags declare {held:,}")


def _is_big(data: bytes) -> bool:
    return b"+" in data[2:4]


def _entries(data: bytes) -> list[tuple[int, int, int, int]]:
    """Return tag, type, number of values, and value or offset of each entry; an empty list for an invalid header."""
    order, big = _STARTS.get(data[:4]), _is_big(data)
    if order is None or len(data) < 16:
        return []
    (at,) = struct.unpack_from(f"{order}{'Q' if big else 'I'}", data, 8 if big else 4)
    head, entry = struct.Struct(f"{order}{'Q' if big else 'H'}"), struct.Struct(f"{order}HH{'QQ' if big else 'II'}")
    if at + head.size > len(data):
        return []
    (count,) = head.unpack_from(data, at)
    begin = at + head.size
    complete = min(count, _MAX_TAGS, (len(data) - begin) // entry.size)
    return list(entry.iter_unpack(memoryview(data)[begin : begin + complete * entry.size]))
