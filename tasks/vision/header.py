"""The size of an encoded image, read from its header alone, so that a huge one is refused before it is decoded."""

import io
import re
import struct

import PIL.Image

from tasks.exchange.error import invalid

__all__ = ("image_size",)

# Pillow's own guard would warn or raise at sizes of its choosing, while opening; ours is a setting and comes first.
PIL.Image.MAX_IMAGE_PIXELS = None

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_JPEG_START = b"\xff\xd8\xff"
_STANDALONE_MARKERS = frozenset({0x01, *range(0xD0, 0xDA)})
_FILL = re.compile(rb"\xff+")
_MOST_SEGMENTS = 4096
_FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
# SOF0-SOF15 without DHT (C4), JPG (C8) and DAC (CC): ITU-T T.81 table B.1.
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_size(data: bytes) -> tuple[int, int]:
    """Width and height in pixels; which of them is which may change when an orientation is applied.

    JPEG and PNG are read here, being nearly all of the traffic; Pillow reads the other formats, also without decoding.

    Raises:
        InferenceError: INVALID_REQUEST when the bytes are not an image of a known format.
    """
    if data.startswith(_JPEG_START):
        return _jpeg_size(data)
    if data.startswith(_PNG_SIGNATURE) and len(data) >= 24:
        width, height = struct.unpack_from(">II", data, 16)
        return width, height
    try:
        with PIL.Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            return image.size
    except Exception:  # noqa: BLE001  Pillow's plugins raise whatever their parser met; each means the same to a sender
        raise invalid(f"Expected an encoded image (JPEG, PNG, WebP, BMP, TIFF, GIF), got {_described(data)}") from None


def _jpeg_size(data: bytes) -> tuple[int, int]:
    position, end = 2, len(data)
    for _ in range(_MOST_SEGMENTS):
        if position + 9 > end or data[position] != 0xFF:
            break
        # Any number of fill bytes may come before a marker (T.81 B.1.1.2).
        position = _FILL.match(data, position).end() - 1  # pyright: ignore[reportOptionalMemberAccess]
        if position + 9 > end:
            break
        marker = data[position + 1]
        if marker in _STANDALONE_MARKERS:
            position += 2
        elif marker in _FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        else:
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    raise invalid("The image is a JPEG without a frame header: its data is truncated or damaged")


def _described(data: bytes) -> str:
    if not data:
        return "no bytes"
    return f"{len(data)} bytes that begin with {data[:8].hex(' ')}"
