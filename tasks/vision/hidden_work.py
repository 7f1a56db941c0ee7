"""Work in an encoded image that its size does not tell of: a small file can keep a decoder busy for minutes."""

import struct
import zlib

from tasks.exchange.error import invalid
from tasks.exchange.limits import beyond
from tasks.vision.header import PNG_SIGNATURE

__all__ = ("check_png", "check_scans", "unfolds_to")

_JPEG_START = b"\xff\xd8\xff"
_SCAN = b"\xff\xda"
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MOST_SEGMENTS = 4096

_MOST_RATIO = 1032
"""Bytes that deflate can make of one (RFC 1951: a length of 258 in two bits)."""

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By the colour type of a PNG (11.2.2 of its specification)."""

_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Adam7: where each pass begins, in x and y, and its steps."""

_BLOCK = 1 << 20
_SLACK = 1 << 20


def check_scans(data: bytes, most: int) -> None:
    """Refuse a JPEG that tells its pixels in more than `most` scans: each of them may go over the whole picture.

    Raises:
        InferenceError: TOO_LARGE.
    """
    at = _first_scan(data)
    for _ in range(most):
        if at < 0:
            return
        # Behind a scan's header, FF is followed by 00 or by a marker.
        at = data.find(_SCAN, at + 2)
    if at >= 0:
        raise beyond(most, "scans in a JPEG")


def unfolds_to(data: bytes) -> int:
    """How many bytes the compressed pixels of a PNG can unfold to, whatever its size says; 0 for other images."""
    return _MOST_RATIO * len(data) if data.startswith(PNG_SIGNATURE) else 0


def check_png(data: bytes) -> None:
    """Refuse a PNG whose compressed data go on long after its pixels.

    Raises:
        InferenceError: INVALID_REQUEST. What is wrong with it otherwise is left to the decoder.
    """
    if len(data) < 33:
        return
    left = most = 2 * _raw_size(data) + _SLACK
    stream = zlib.decompressobj()
    position = len(PNG_SIGNATURE)
    try:
        while position + 8 <= len(data) and not stream.eof:
            length, kind = struct.unpack_from(">I4s", data, position)
            if kind == b"IDAT":
                piece = data[position + 8 : position + 8 + length]
                while piece and not stream.eof:
                    left -= len(stream.decompress(piece, _BLOCK))
                    piece = stream.unconsumed_tail
                    if left < 0:
                        raise invalid(f"The image is a PNG of more data than pixels: it unfolds to over {most:,} bytes")
            position += 12 + length
    except zlib.error:
        return


def _raw_size(data: bytes) -> int:
    """Bytes of the filtered rows of a PNG."""
    width, height, depth, colours, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    bits = depth * _CHANNELS.get(colours, 4)
    passes = _PASSES if interlaced else ((0, 0, 1, 1),)
    size = 0
    for x, y, across, down in passes:
        columns, rows = -(-(width - x) // across), -(-(height - y) // down)
        if columns > 0 and rows > 0:
            size += rows * (1 + -(-columns * bits // 8))
    return size


def _first_scan(data: bytes) -> int:
    """Where the first scan of a JPEG begins; -1 where it is the only one, or there is none."""
    if not data.startswith(_JPEG_START):
        return -1
    position, frame, components = 2, 0, 0
    for _ in range(_MOST_SEGMENTS):
        if position + 10 > len(data) or data[position] != 0xFF:
            return -1
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
        elif marker == 0xDA:
            # A decoder reads nothing behind a sequential scan of all components.
            return -1 if frame in _SEQUENTIAL and data[position + 4] >= components else position
        elif marker == 0x01 or 0xD0 <= marker <= 0xD9:
            position += 2
        else:
            if marker in _FRAMES:
                frame, components = marker, data[position + 9]
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    return -1
