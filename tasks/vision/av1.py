"""Read the size of the frames in an AVIF file. The size in its header may differ: decoders scale frames to it.

The file consists of boxes (ISO/IEC 14496-12 and 23008-12), the frames of open bitstream units (AV1, 5.3 to 5.5).
"""

import struct
from collections.abc import Iterator

from tasks.inference.error import invalid
from tasks.vision.iso_bmff import Span, iter_boxes, nested_boxes

__all__ = ("av1_pixels",)

_MAX_PARTS = 4096
_SEQUENCE_HEADER = 1
_HIGHEST_UNTIERED_LEVEL = 7
_MAX_UVLC = 32
_SAMPLE_TABLE = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
_FIRST_TYPED_VERSION = 2
"""The first version of an `infe` box that has an item type."""


def av1_pixels(data: bytes) -> int:
    """Return the pixels of all frames of the first image of an AVIF file, including tiles, alpha and thumbnails.

    Raises:
        InferenceError: INVALID_REQUEST for a file with too many parts.
    """
    pixels = 0
    try:
        for meta, end in nested_boxes(data, (b"meta",)):
            pixels += sum(_largest_frame_pixels(item) for item in _items(data, (meta + 4, end)))
        for table in nested_boxes(data, _SAMPLE_TABLE):
            first_offset = next(_first_offsets(data, table), None)
            pixels += (
                _largest_frame_pixels(data[first_offset : first_offset + _first_size(data, table)])
                if first_offset is not None
                else 0
            )
    except (struct.error, IndexError):
        # The decoder rejects truncated files.
        return pixels
    return pixels


def _items(data: bytes, meta: Span) -> Iterator[bytes]:
    """Yield the bytes of each item that holds frames."""
    frames = {number for inner in nested_boxes(data, (b"iinf",), meta) for number in _frame_items(data, inner)}
    idat = next(nested_boxes(data, (b"idat",), meta), (0, 0))
    remaining = 4 * len(data)
    for begin, end in nested_boxes(data, (b"iloc",), meta):
        for number, in_meta, spans in _locations(data[begin:end]):
            if number not in frames:
                continue
            offset, limit = idat if in_meta else (0, len(data))
            parts = [data[offset + at : min(offset + at + length, limit) if length else limit] for at, length in spans]
            remaining -= sum(map(len, parts))
            if remaining < 0:
                raise invalid("The image is an AVIF whose parts refer to the same bytes too often")
            yield b"".join(parts)


def _frame_items(data: bytes, iinf: Span) -> Iterator[int]:
    begin, end = iinf
    version = data[begin]
    for box_type, (at, _) in iter_boxes(data, begin + (8 if version else 6), end):
        if box_type == b"infe" and data[at] >= _FIRST_TYPED_VERSION:
            number, _, item_type = struct.unpack_from(
                ">HH4s" if data[at] == _FIRST_TYPED_VERSION else ">IH4s", data, at + 4
            )
            if item_type == b"av01":
                yield number


def _locations(iloc: bytes) -> Iterator[tuple[int, bool, list[Span]]]:
    """Yield the number of each item, whether it is in the `meta` box, and the offsets and lengths of its parts."""
    version, sizes, more_sizes = iloc[0], iloc[4], iloc[5]
    at, remaining_parts = 6, _MAX_PARTS

    def read(size: int) -> int:
        nonlocal at
        if at + size > len(iloc):
            raise IndexError
        at += size
        return int.from_bytes(iloc[at - size : at], "big")

    id_size = 4 if version == 2 else 2
    for _ in range(read(id_size)):
        number = read(id_size)
        in_meta = bool(version and read(2) & 15)
        read(2)
        base = read(more_sizes >> 4)
        spans: list[Span] = []
        for _ in range(read(2)):
            remaining_parts -= 1
            if remaining_parts < 0:
                raise invalid(f"The image is an AVIF of more than {_MAX_PARTS} parts")
            read(more_sizes & 15 if version else 0)
            offset = base + read(sizes >> 4)
            spans.append((offset, read(sizes & 15)))
        yield number, in_meta, spans


def _first_offsets(data: bytes, table: Span) -> Iterator[int]:
    for box_type, (at, _) in iter_boxes(data, *table):
        if box_type in (b"stco", b"co64"):
            yield struct.unpack_from(">I" if box_type == b"stco" else ">Q", data, at + 8)[0]


def _first_size(data: bytes, table: Span) -> int:
    for at, _ in nested_boxes(data, (b"stsz",), table):
        uniform_size, _, first = struct.unpack_from(">III", data, at + 4)
        return uniform_size or first
    return len(data)


def _largest_frame_pixels(sample: bytes) -> int:
    """Return the pixels of the largest frame in the sequence headers of a sample."""
    at = largest = 0
    for _ in range(_MAX_PARTS):
        if at >= len(sample) or sample[at] & 0x80:
            return largest
        unit_type, has_extension, has_size = sample[at] >> 3 & 15, sample[at] >> 2 & 1, sample[at] >> 1 & 1
        at += 1 + has_extension
        length, at = _leb128(sample, at) if has_size else (len(sample) - at, at)
        if unit_type == _SEQUENCE_HEADER:
            largest = max(largest, _max_frame_pixels(_BitReader(sample[at : at + length])))
        at += length
    raise invalid(f"The image is an AVIF of more than {_MAX_PARTS} parts")


def _leb128(sample: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        byte = sample[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise IndexError


class _BitReader:
    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data[:256], "big")
        self._remaining = 8 * len(data[:256])

    def __call__(self, count: int) -> int:
        self._remaining -= count
        if self._remaining < 0:
            raise IndexError
        return self._value >> self._remaining & (1 << count) - 1


def _max_frame_pixels(read_bits: _BitReader) -> int:
    """Return the pixels of the largest frame of a sequence header (5.5.1)."""
    read_bits(4)
    if read_bits(1):
        read_bits(5)
    else:
        _skip_timing(read_bits)
    width_bits, height_bits = read_bits(4) + 1, read_bits(4) + 1
    return (read_bits(width_bits) + 1) * (read_bits(height_bits) + 1)


def _skip_timing(read_bits: _BitReader) -> None:
    delay_bits = 0
    if read_bits(1):
        read_bits(64)
        if read_bits(1):
            _skip_uvlc(read_bits)
        if read_bits(1):
            delay_bits = read_bits(5) + 1
            read_bits(42)
    has_initial_delay = read_bits(1)
    for _ in range(read_bits(5) + 1):
        read_bits(12)
        if read_bits(5) > _HIGHEST_UNTIERED_LEVEL:
            read_bits(1)
        if delay_bits and read_bits(1):
            read_bits(2 * delay_bits + 1)
        if has_initial_delay and read_bits(1):
            read_bits(4)


def _skip_uvlc(read_bits: _BitReader) -> None:
    zeros = 0
    while not read_bits(1):
        zeros += 1
    if zeros < _MAX_UVLC:
        read_bits(zeros)
