"""Read the tags of a TIFF, or of the EXIF data of a JPEG (which are a TIFF), without their values."""

import struct
from collections.abc import Mapping

from tasks.inference.error import invalid

_STARTS = {b"II*\0": "<", b"MM\0*": ">", b"II+\0": "<", b"MM\0+": ">"}
"""The first bytes of TIFF 6.0 and BigTIFF, with the byte order for `struct`. Numbers of BigTIFF are twice as long."""

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of one value by type (TIFF 6.0, section 2). Decoders skip other types."""

_TILE_WIDTH, _TILE_HEIGHT = 322, 323
_SHORT = 3
_MAX_TAGS = 65_535
_SLACK = 1 << 20


def tags(data: bytes) -> Mapping[int, int]:
    """Return the tags of the first page, each with its value, or with the offset of its values if they do not fit.

    If a tag is repeated, the first one counts, as in libtiff.
    """
    values_by_tag: dict[int, int] = {}
    for tag, value_type, _, value in _entries(data):
        if value_type == _SHORT and _STARTS[data[:4]] == ">":
            value >>= 48 if _is_big(data) else 16
        values_by_tag.setdefault(tag, value & 0xFFFF if value_type == _SHORT else value)
    return values_by_tag


def tile_pixels(data: bytes) -> int:
    """Return the pixels of one tile of a TIFF, which the decoder allocates; 0 for other images."""
    values_by_tag = tags(data)
    return values_by_tag.get(_TILE_WIDTH, 0) * values_by_tag.get(_TILE_HEIGHT, 0)


def check_tags(data: bytes) -> None:
    """Reject a TIFF whose tags declare far more bytes than the file has: decoders copy shared bytes for each tag.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    declared = sum(_SIZES.get(kind, 0) * count for _, kind, count, _ in _entries(data))
    if declared > 2 * len(data) + _SLACK:
        raise invalid(f"The image is a TIFF of {len(data):,} bytes, and its tags declare {declared:,}")


def _is_big(data: bytes) -> bool:
    return b"+" in data[2:4]


def _entries(data: bytes) -> list[tuple[int, int, int, int]]:
    """Return tag, type, number of values, and value or offset of each entry; an empty list for an invalid header."""
    byte_order, is_big = _STARTS.get(data[:4]), _is_big(data)
    if byte_order is None or len(data) < 16:
        return []
    (offset,) = struct.unpack_from(f"{byte_order}{'Q' if is_big else 'I'}", data, 8 if is_big else 4)
    count_format, entry_format = (
        struct.Struct(f"{byte_order}{'Q' if is_big else 'H'}"),
        struct.Struct(f"{byte_order}HH{'QQ' if is_big else 'II'}"),
    )
    if offset + count_format.size > len(data):
        return []
    (count,) = count_format.unpack_from(data, offset)
    begin = offset + count_format.size
    complete = min(count, _MAX_TAGS, (len(data) - begin) // entry_format.size)
    return list(entry_format.iter_unpack(memoryview(data)[begin : begin + complete * entry_format.size]))
