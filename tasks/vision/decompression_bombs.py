"""Reject decompression bombs: small files that keep a decoder busy for minutes."""

import struct
import zlib
from collections.abc import Iterator

from tasks.inference.error import invalid
from tasks.vision.tiff import orientation_of

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MAX_RATIO = 1032
"""The maximum compression ratio of deflate (RFC 1951: a length of 258 in two bits)."""

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels by the colour type of a PNG (11.2.2 of its specification)."""

_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Adam7: start x, start y, step x and step y of each pass."""

_TEXTS = (b"zTXt", b"iTXt", b"iCCP")
"""Compressed chunks of a PNG without pixels: a decoder decompresses them to a thousand times their size for nothing."""

_MAX_CHUNKS = 65_536
_CHECKSUM_BYTES = 4
_BLOCK = 1 << 20
_SLACK = 1 << 20


def png_orientation(data: bytes) -> int:
    """Return the Exif orientation of a PNG, 1..8; 1 if it has none. Raise INVALID_REQUEST for too many chunks."""
    for chunk_type, start, end in _chunks(data):
        if chunk_type == b"eXIf":
            return orientation_of(data[start + 8 : end - _CHECKSUM_BYTES])
    return 1


def strip_text_chunks(data: bytes) -> bytes:
    """Return a PNG without its compressed texts and colour profile, which decoding does not need; others unchanged."""
    if not data.startswith(PNG_SIGNATURE) or not any(chunk_type in data for chunk_type in _TEXTS):
        return data
    view, sections, begin = memoryview(data), list[memoryview](), 0
    for chunk_type, start, end in _chunks(data):
        if chunk_type in _TEXTS:
            sections.append(view[begin:start])
            begin = end
    return b"".join([*sections, view[begin:]])


def check_chunks(data: bytes) -> None:
    """Reject a PNG with a chunk that ends after the file: decoders allocate its declared length, up to 4 GB."""
    if not data.startswith(PNG_SIGNATURE):
        return
    for chunk_type, _, end in _chunks(data):
        if end - _CHECKSUM_BYTES > len(data):
            raise invalid("The image cannot be decoded: it is a PNG with a chunk that ends after the file")
        if chunk_type == b"IEND":
            return


def max_decompressed_bytes(data: bytes) -> int:
    """Return the maximum number of bytes after decompression of a PNG, from its file size; 0 for other images."""
    return _MAX_RATIO * len(data) if data.startswith(PNG_SIGNATURE) else 0


def check_png(data: bytes) -> None:
    """Reject a PNG whose compressed data are much larger than its pixels. The decoder reports other defects."""
    if len(data) < 33:
        return
    remaining = max_bytes = 2 * _raw_bytes(data) + _SLACK
    stream = zlib.decompressobj()
    try:
        for chunk_type, start, end in _chunks(data):
            if chunk_type == b"IDAT":
                block = data[start + 8 : end - _CHECKSUM_BYTES]
                while block and not stream.eof:
                    remaining -= len(stream.decompress(block, _BLOCK))
                    block = stream.unconsumed_tail
                    if remaining < 0:
                        message = f"The image is a PNG of more data than pixels: over {max_bytes:,} bytes decompressed"
                        raise invalid(message)
            if stream.eof:
                return
    except zlib.error:
        return


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the type, start and end of each chunk of a PNG, up to a limit. The end may be after the data."""
    position = len(PNG_SIGNATURE)
    for _ in range(_MAX_CHUNKS):
        if position + 8 > len(data):
            return
        length, chunk_type = struct.unpack_from(">I4s", data, position)
        yield chunk_type, position, position + 12 + length
        position += 12 + length
    raise invalid(f"The image is a PNG of more than {_MAX_CHUNKS:,} chunks")


def _raw_bytes(data: bytes) -> int:
    """Return the bytes of the filtered rows of a PNG."""
    width, height, depth, colour_type, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    bits = depth * _CHANNELS.get(colour_type, 4)
    passes = _PASSES if interlaced else ((0, 0, 1, 1),)
    size = 0
    for x, y, step_x, step_y in passes:
        columns, rows = -(-(width - x) // step_x), -(-(height - y) // step_y)
        if columns > 0 and rows > 0:
            size += rows * (1 + -(-columns * bits // 8))
    return size
