"""The size of an encoded image, read from its header alone, so that a huge one is refused before it is decoded."""

import io
import struct

import PIL.Image

from tasks.exchange.error import invalid

__all__ = ("image_size",)

# Pillow's own guard would warn or raise at sizes of its choosing, while opening; ours is a setting and comes first.
PIL.Image.MAX_IMAGE_PIXELS = None

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_JPEG_START = b"\xff\xd8\xff"
_STANDALONE_MARKERS = frozenset({0x01, *range(0xD0, 0xDA)})
# SOF0-SOF15 without DHT (C4), JPG (C8) and DAC (CC): ITU-T T.81 table B.1.
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_size(data: bytes) -> tuple[int, int]:
    """Width and height in pixels as stored, before any EXIF rotation.

    JPEG and PNG are read here, being nearly all of the traffic; Pillow reads the other formats, also without decoding.

    Raises:
        InferenceError: INVALID_REQUEST when the bytes are not an image of a known format.
    """
    if data.startswith(_JPEG_START):
        size = _jpeg_size(data)
        if size is not None:
            return size
    elif data.startswith(_PNG_SIGNATURE) and len(data) >= 24:
        width, height = struct.unpack_from(">II", data, 16)
        return width, height
    try:
        with PIL.Image.open(io.BytesIO(data)) as image:
            return image.size
    except Exception:  # noqa: BLE001  Pillow's plugins raise whatever their parser met; each means the same to a sender
        raise invalid(f"Expected an encoded image (JPEG, PNG, WebP, BMP, TIFF, GIF), got {_described(data)}") from None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    position, end = 2, len(data)
    while position + 9 <= end:
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:  # fill byte, T.81 B.1.1.2
            position += 1
        elif marker in _STANDALONE_MARKERS:
            position += 2
        elif marker in _FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        else:
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    return None


def _described(data: bytes) -> str:
    if not data:
        return "no bytes"
    return f"{len(data)} bytes that begin with {data[:8].hex(' ')}"
