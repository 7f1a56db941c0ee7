"""Read the tags of a TIFF, which is also the form of Exif data."""

import struct
from collections.abc import Mapping

from tasks.inference.error import invalid

TIFF_STARTS = {b"II*\0": "<", b"MM\0*": ">", b"II+\0": "<", b"MM\0+": ">"}
"""The first bytes of TIFF 6.0 and BigTIFF, with the byte order for `struct`. Numbers of BigTIFF are twice as long."""

EXIF_START = b"Exif\0\0"
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of one value by type (TIFF 6.0, section 2). Decoders skip other types."""
_INTEGERS = frozenset({1, 3, 4, 6, 8, 9, 16, 17})

_WIDTH, _HEIGHT, _ORIENTATION, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 274, 322, 323
_MAX_TAGS = 65_535
_SLACK = 1 << 20


def tiff_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height of the first page in pixels, before it is rotated; None if the tags do not have them."""
    values = tags(data)
    return (values[_WIDTH], values[_HEIGHT]) if _WIDTH in values and _HEIGHT in values else None


def orientation_of(data: bytes) -> int:
    """Return the orientation in the tags of a TIFF or of Exif data, 1..8; 1, which is upright, if there is none."""
    orientation = tags(data.removeprefix(EXIF_START)).get(_ORIENTATION, 1)
    return orientation if 1 <= orientation <= 8 else 1


def tags(data: bytes) -> Mapping[int, int]:
    """Return the tags of the first page that are one integer each; of a repeated tag the first, as libtiff."""
    values_by_tag: dict[int, int] = {}
    for tag, kind, count, field in _entries(data):
        if kind in _INTEGERS and count == 1:
            byte_order, size = TIFF_STARTS[data[:4]], _SIZES[kind]
            if size > len(field):
                (offset,) = struct.unpack(f"{byte_order}I", field)
                field = data[offset : offset + size]
            value = int.from_bytes(field[:size], "little" if byte_order == "<" else "big")
            values_by_tag.setdefault(tag, value)
    return values_by_tag


def tile_pixels(data: bytes) -> int:
    """Return the pixels of one tile of a TIFF, which the decoder allocates; 0 for other images."""
    values_by_tag = tags(data)
    return values_by_tag.get(_TILE_WIDTH, 0) * values_by_tag.get(_TILE_HEIGHT, 0)


def check_tags(data: bytes) -> None:
    """Reject a TIFF whose tags declare far more bytes than the file has: decoders copy shared bytes for each tag."""
    declared = sum(_SIZES.get(kind, 0) * count for _, kind, count, _ in _entries(data))
    if declared > 2 * len(data) + _SLACK:
        raise invalid(f"The image is a TIFF of {len(data):,} bytes, and its tags declare {declared:,}")


def _entries(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Return tag, type, number of values, and value or offset of each entry; an empty list for an invalid header."""
    byte_order, is_big = TIFF_STARTS.get(data[:4]), b"+" in data[2:4]
    if byte_order is None or len(data) < 16:
        return []
    (offset,) = struct.unpack_from(f"{byte_order}{'Q' if is_big else 'I'}", data, 8 if is_big else 4)
    count_format = struct.Struct(f"{byte_order}{'Q' if is_big else 'H'}")
    entry_format = struct.Struct(f"{byte_order}HH{'Q8s' if is_big else 'I4s'}")
    if offset + count_format.size > len(data):
        return []
    (count,) = count_format.unpack_from(data, offset)
    begin = offset + count_format.size
    complete = min(count, _MAX_TAGS, (len(data) - begin) // entry_format.size)
    return list(entry_format.iter_unpack(memoryview(data)[begin : begin + complete * entry_format.size]))
