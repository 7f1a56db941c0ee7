"""Read the size and the orientation of an encoded image, so that large images are rejected before decoding."""

import io
import re
import struct
from typing import NamedTuple

from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import too_large
from tasks.vision.decompression_bombs import PNG_SIGNATURE, png_orientation
from tasks.vision.tiff import EXIF_START, TIFF_STARTS, orientation_of, tiff_size

JPEG_START = b"\xff\xd8\xff"
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])", re.DOTALL)
"""A decoder skips any bytes before a marker, including fill bytes 0xFF (ITU-T T.81, B.1.1.2)."""

_LOWEST_SEGMENT = 0xC0
_START, _END, _SCAN, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_MAX_SEGMENTS = 4096
_FORMATS = ("AVIF", "BMP", "DIB", "JPEG2000", "PNG", "PPM", "WEBP")
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


class ImageHeader(NamedTuple):
    """Width and height of an encoded image in pixels, and its Exif orientation, 1..8, by which it is rotated."""

    width: int
    height: int
    orientation: int = 1

    @property
    def upright_size(self) -> tuple[int, int]:
        """Return width and height in pixels of the decoded, upright image."""
        return (self.height, self.width) if self.orientation in _TRANSPOSED else (self.width, self.height)


def image_size(data: bytes, *, allow_avif_jpeg2000: bool = False) -> tuple[int, int]:
    """Return width and height in pixels of the upright image, and raise errors, as `read_header`."""
    return read_header(data, allow_avif_jpeg2000=allow_avif_jpeg2000).upright_size


def read_header(data: bytes, *, allow_avif_jpeg2000: bool = False, max_scans: int | None = None) -> ImageHeader:
    """Return the size and the orientation of an image, of its first frame.

    JPEG, PNG, GIF and TIFF are read here: JPEG and PNG are the most frequent formats, Pillow reads all comments of a
    GIF, and it cannot open each TIFF that OpenCV decodes. Pillow reads the headers of other formats, without decoding.
    Headers of AVIF and JPEG 2000 do not bound the memory of a decoder. Raise INVALID_REQUEST if the bytes are not an
    image of an accepted format, and as `jpeg_header`, which explains `max_scans`.
    """
    if data.startswith(JPEG_START):
        return jpeg_header(data, max_scans)
    if data.startswith(PNG_SIGNATURE) and len(data) >= 24:
        width, height = struct.unpack_from(">II", data, 16)
        return ImageHeader(width, height, png_orientation(data))
    if data.startswith(_GIF_STARTS) and len(data) >= 10:
        width, height = struct.unpack_from("<HH", data, 6)
        return ImageHeader(width, height)
    if data[:4] in TIFF_STARTS:
        if (size := tiff_size(data)) is None:
            raise _unknown_format(data, allow_avif_jpeg2000=allow_avif_jpeg2000)
        return ImageHeader(*size, orientation_of(data))
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
            return ImageHeader(*image.size, orientation_of(image.info.get("exif", b"")))
    except Exception:  # noqa: BLE001  Pillow's plugins raise many types of exceptions for invalid images
        raise _unknown_format(data, allow_avif_jpeg2000=allow_avif_jpeg2000) from None


def jpeg_header(data: bytes, max_scans: int | None = None) -> ImageHeader:
    """Return the size in the frame header of a JPEG, and the orientation in Exif data before it.

    `max_scans` limits the progressive scans, because each may process the whole image; None stops at the frame header.
    Raise INVALID_REQUEST without a frame header, or for too many segments; TOO_LARGE for too many scans.
    """
    header, orientation = None, 0
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
            header = header or ImageHeader(width, height, orientation or 1)
            if max_scans is None:
                return header
        elif marker == _APP1 and not orientation and data.startswith(EXIF_START, position + 2):
            orientation = orientation_of(data[position + 2 : position + struct.unpack_from(">H", data, position)[0]])
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
    if header is None:
        raise invalid("The image is a JPEG without a frame header: its data is truncated or damaged")
    return header


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
