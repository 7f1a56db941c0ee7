"""Room that a decoder takes for an image beyond the pixels of its size, told from its structure beforehand."""

import struct

from tasks.vision.av1 import av1_pixels
from tasks.vision.file_boxes import boxes
from tasks.vision.tiff_tags import is_tiff, tags

__all__ = ("hidden_room",)

_TILE_WIDTH, _TILE_HEIGHT = 322, 323

_CODESTREAM = b"\xff\x4f\xff\x51"
"""How a JPEG 2000 codestream begins: SOC and SIZ (ITU-T T.800, A.4 and A.5)."""

_JP2_START = b"\0\0\0\x0cjP  \r\n\x87\n"
_PIXELS_A_TILE = 4096
"""A decoder keeps some twelve kilobytes for each tile of a JPEG 2000 image, however small."""


def hidden_room(data: bytes) -> int:
    """For how many pixels the decoder of an encoded image makes room; 0 where its size tells.

    Raises:
        InferenceError: INVALID_REQUEST for one of too many parts to follow.
    """
    if is_tiff(data):
        found = tags(data)
        return found.get(_TILE_WIDTH, 0) * found.get(_TILE_HEIGHT, 0)
    if data.startswith(_CODESTREAM):
        return _PIXELS_A_TILE * _tiles(data, 0)
    if data.startswith(_JP2_START):
        begin = next((begin for kind, (begin, _) in boxes(data) if kind == b"jp2c"), len(data))
        return _PIXELS_A_TILE * _tiles(data, begin)
    return av1_pixels(data) if data[4:8] == b"ftyp" else 0


def _tiles(data: bytes, at: int) -> int:
    if not data.startswith(_CODESTREAM, at) or at + 40 > len(data):
        return 0
    right, bottom, _, _, width, height, left, top = struct.unpack_from(">8I", data, at + 8)
    if not width or not height:
        return 0
    return max(0, -(-(right - left) // width)) * max(0, -(-(bottom - top) // height))
