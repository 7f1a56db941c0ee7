"""Read the size, the scans and the tags of an encoded image, so that large images are rejected before decoding."""

import io
import re
import struct
from collections.abc import Mapping

from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import too_large

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
JPEG_START = b"\xff\xd8\xff"
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])", re.DOTALL)
"""A decoder skips any bytes before a marker, including fill bytes 0xFF (ITU-T T.81, B.1.1.2)."""

_LOWEST_SEGMENT = 0xC0
_START, _END, _SCAN = 0xD8, 0xD9, 0xDA
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_MAX_SEGMENTS = 4096
_EXIF_SEARCH_BYTES = 64 * 1024
_EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112
_FORMATS = ("AVIF", "BMP", "DIB", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_JPEG_2000_STARTS = (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51")
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset(
    {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"mif2", b"msf1"}
)
_MAX_BRANDS_BYTES = 256
_GIF_STARTS = (b"GIF87a", b"GIF89a")
_PPM_START = re.compile(rb"P[0-9a-zA-Z]\s")
_PPM_HEADER = 64 * 1024
_PPM_SPACE = rb"(?:\s|(?<=\s)#[^\r\n]*[\r\n])++"
_PPM_SIZE = re.compile(rb"P[1-6fF]" + _PPM_SPACE + rb"\d+" + _PPM_SPACE + rb"\d+\s")
"""Comments inside a number do not match: Pillow and OpenCV would read different sizes."""
_TRANSPOSED = frozenset({5, 6, 7, 8})
"""EXIF orientations that swap width and height."""
# SOF0-SOF15 without DHT (C4), JPG (C8) and DAC (CC): ITU-T T.81 table B.1.
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
TIFF_STARTS = {b"II*\0": "<", b"MM\0*": ">", b"II+\0": "<", b"MM\0+": ">"}
"""The first bytes of TIFF 6.0 and BigTIFF, with the byte order for `struct`. Numbers of BigTIFF are twice as long."""

_TIFF_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of one value by type (TIFF 6.0, section 2). Decoders skip other types."""

_TILE_WIDTH, _TILE_HEIGHT = 322, 323
_TIFF_SHORT = 3
_MAX_TIFF_TAGS = 65_535
_TIFF_SLACK = 1 << 20


def image_size(data: bytes, *, allow_avif_jpeg2000: bool = False) -> tuple[int, int]:
    """Return width and height in pixels, before the EXIF orientation is applied.

    JPEG, PNG and GIF are read here: JPEG and PNG are the most frequent formats, and Pillow reads all comments of a GIF.
    Pillow reads the headers of other formats, without decoding. Those of AVIF and JPEG 2000 do not bound the memory of
    a decoder. Raise INVALID_REQUEST if the bytes are not an image of an accepted format.
    """
    if data.startswith(JPEG_START):
        return jpeg_size(data)
    if data.startswith(PNG_SIGNATURE) and len(data) >= 24:
        width, height = struct.unpack_from(">II", data, 16)
        return width, height
    if data.startswith(_GIF_STARTS) and len(data) >= 10:
        width, height = struct.unpack_from("<HH", data, 6)
        return width, height
    if _is_heic(data):
        raise invalid("HEIC and HEIF images are not decoded; convert them to JPEG or PNG first")
    if not allow_avif_jpeg2000 and (data[4:8] == b"ftyp" or data.startswith(_JPEG_2000_STARTS)):
        raise invalid("AVIF and JPEG 2000 images are disabled; the option --allow-avif-jpeg2000 enables them")
    # Pillow reads the comments in the header of a portable pixmap byte by byte.
    header = data
    if _PPM_START.match(data):
        header = data[:_PPM_HEADER]
        if not _PPM_SIZE.match(header):
            raise _unknown_format(data, allow_avif_jpeg2000=allow_avif_jpeg2000)
    # Import late: Pillow takes memory, and the usual formats do not need it.
    import PIL.Image

    # Disable Pillow's own limit: the server's limit is a setting, and is checked first.
    PIL.Image.MAX_IMAGE_PIXELS = None
    try:
        with PIL.Image.open(io.BytesIO(header), formats=_FORMATS) as image:
            return image.size
    except Exception:  # noqa: BLE001  Pillow's plugins raise many types of exceptions for invalid images
        raise _unknown_format(data, allow_avif_jpeg2000=allow_avif_jpeg2000) from None


def upright_size(data: bytes, width: int, height: int) -> tuple[int, int]:
    """Return width and height of a JPEG after its EXIF orientation is applied."""
    offset = data.find(_EXIF, 0, _EXIF_SEARCH_BYTES)
    if offset < 4 or data[offset - 4 : offset - 2] != b"\xff\xe1":
        return width, height
    (length,) = struct.unpack_from(">H", data, offset - 2)
    orientation = tags(data[offset + len(_EXIF) : offset - 2 + length]).get(_ORIENTATION)
    return (height, width) if orientation in _TRANSPOSED else (width, height)


def jpeg_size(data: bytes, max_scans: int | None = None) -> tuple[int, int]:
    """Return width and height in the frame header of a JPEG.

    `max_scans` limits the progressive scans, because each may process the whole image; None stops at the frame header.
    Raise INVALID_REQUEST without a frame header, or for too many segments; TOO_LARGE for too many scans.
    """
    size: tuple[int, int] | None = None
    position, scans, frame, components = 2, 0, 0, 0
    for _ in range(_MAX_SEGMENTS):
        match = _MARKER.search(data, position)
        if match is None or (marker := match[1][0]) == _END or match.end() + 8 > len(data):
            break
        position = match.end()
        if marker < _LOWEST_SEGMENT or marker == _START:
            continue
        if marker in _FRAME_MARKERS:
            frame, components = marker, data[position + 7]
            height, width = struct.unpack_from(">HH", data, position + 3)
            size = size or (width, height)
            if max_scans is None:
                return size
        elif marker == _SCAN and max_scans is not None:
            # A decoder stops after a sequential scan of all components.
            if frame in _SEQUENTIAL and data[position + 2] >= components:
                break
            scans += 1
            if scans > max_scans:
                raise too_large(max_scans, "scans in a JPEG (--max-image-scans)")
        position += max(2, struct.unpack_from(">H", data, position)[0])
    else:
        raise invalid(f"The image is a JPEG of more than {_MAX_SEGMENTS:,} segments")
    if size is None:
        raise invalid("The image is a JPEG without a frame header: its data is truncated or damaged")
    return size


def _is_heic(data: bytes) -> bool:
    """Return whether the file type box (ISO/IEC 14496-12) names a brand of HEIC or HEIF, and none of AVIF."""
    if data[4:8] != b"ftyp":
        return False
    size = min(int.from_bytes(data[:4], "big"), _MAX_BRANDS_BYTES)
    # The minor version follows the major brand.
    brands = {data[8:12], *(data[start : start + 4] for start in range(16, size, 4))}
    return not brands.isdisjoint(_HEIC_BRANDS) and brands.isdisjoint(_AVIF_BRANDS)


def _unknown_format(data: bytes, *, allow_avif_jpeg2000: bool) -> InferenceError:
    found = f"{len(data)} bytes that begin with {data[:8].hex(' ')}" if data else "no bytes"
    more = ", AVIF, JPEG 2000" if allow_avif_jpeg2000 else ""
    return invalid(f"Expected an encoded image (JPEG, PNG, WebP, BMP, TIFF, GIF{more}), got {found}")


def tags(data: bytes) -> Mapping[int, int]:
    """Return the tags of the first page, each with its value, or with the offset of its values if they do not fit.

    If a tag is repeated, the first one counts, as in libtiff.
    """
    values_by_tag: dict[int, int] = {}
    for tag, value_type, _, value in _tiff_entries(data):
        if value_type == _TIFF_SHORT and TIFF_STARTS[data[:4]] == ">":
            value >>= 48 if _is_big_tiff(data) else 16
        values_by_tag.setdefault(tag, value & 0xFFFF if value_type == _TIFF_SHORT else value)
    return values_by_tag


def tile_pixels(data: bytes) -> int:
    """Return the pixels of one tile of a TIFF, which the decoder allocates; 0 for other images."""
    values_by_tag = tags(data)
    return values_by_tag.get(_TILE_WIDTH, 0) * values_by_tag.get(_TILE_HEIGHT, 0)


def check_tags(data: bytes) -> None:
    """Reject a TIFF whose tags declare far more bytes than the file has: decoders copy shared bytes for each tag."""
    declared = sum(_TIFF_SIZES.get(kind, 0) * count for _, kind, count, _ in _tiff_entries(data))
    if declared > 2 * len(data) + _TIFF_SLACK:
        raise invalid(f"The image is a TIFF of {len(data):,} bytes, and its tags declare {declared:,}")


def _is_big_tiff(data: bytes) -> bool:
    return b"+" in data[2:4]


def _tiff_entries(data: bytes) -> list[tuple[int, int, int, int]]:
    """Return tag, type, number of values, and value or offset of each entry; an empty list for an invalid header."""
    byte_order, is_big = TIFF_STARTS.get(data[:4]), _is_big_tiff(data)
    if byte_order is None or len(data) < 16:
        return []
    (offset,) = struct.unpack_from(f"{byte_order}{'Q' if is_big else 'I'}", data, 8 if is_big else 4)
    count_format = struct.Struct(f"{byte_order}{'Q' if is_big else 'H'}")
    entry_format = struct.Struct(f"{byte_order}HH{'QQ' if is_big else 'II'}")
    if offset + count_format.size > len(data):
        return []
    (count,) = count_format.unpack_from(data, offset)
    begin = offset + count_format.size
    complete = min(count, _MAX_TIFF_TAGS, (len(data) - begin) // entry_format.size)
    return list(entry_format.iter_unpack(memoryview(data)[begin : begin + complete * entry_format.size]))
