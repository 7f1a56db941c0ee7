"""Estimate the memory that a decoder needs beyond the pixels of an image, from the structure of the file."""

import struct

from tasks.vision.av1 import av1_pixels
from tasks.vision.iso_bmff import iter_boxes
from tasks.vision.tiff_tags import is_tiff, tags

__all__ = ("decoder_pixels",)

_TILE_WIDTH, _TILE_HEIGHT = 322, 323

_CODESTREAM = b"\xff\x4f\xff\x51"
"""The start of a JPEG 2000 codestream: SOC and SIZ (ITU-T T.800, A.4 and A.5)."""

_JP2_START = b"\0\0\0\x0cjP  \r\n\x87\n"
_PIXELS_PER_TILE = 4096
"""A decoder needs about twelve kilobytes for each tile of a JPEG 2000 image, even a small one."""


def decoder_pixels(data: bytes) -> int:
    """Return the number of pixels that the decoder allocates for an image; 0 if it equals the size of the image.

    Raises:
        InferenceError: INVALID_REQUEST for a file with too many parts.
    """
    if is_tiff(data):
        values_by_tag = tags(data)
        return values_by_tag.get(_TILE_WIDTH, 0) * values_by_tag.get(_TILE_HEIGHT, 0)
    if data.startswith(_CODESTREAM):
        return _PIXELS_PER_TILE * _tile_count(data, 0)
    if data.startswith(_JP2_START):
        begin = next((begin for box_type, (begin, _) in iter_boxes(data) if box_type == b"jp2c"), len(data))
        return _PIXELS_PER_TILE * _tile_count(data, begin)
    return av1_pixels(data) if data[4:8] == b"ftyp" else 0


def _tile_count(data: bytes, at: int) -> int:
    if not data.startswith(_CODESTREAM, at) or at + 40 > len(data):
        return 0
    right, bottom, _, _, width, height, left, top = struct.unpack_from(">8I", data, at + 8)
    if not width or not height:
        return 0
    return max(0, -(-(right - left) // width)) * max(0, -(-(bottom - top) // height))
