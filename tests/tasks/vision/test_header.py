"""The size of an image from its header: any bytes give a size or an error."""

import struct
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.inference.error import ErrorKind, InferenceError
from tasks.vision.header import image_size
from tasks.vision.image import decode_image
from tests.support.data.images import encode_image, rectangle

PNG = b"\x89PNG\r\n\x1a\n"
STARTS = [
    PNG, b"\xff\xd8\xff", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", b"GIF89a", b"BM", b"II*\0", b"MM\0*",
    b"RIFF\0\0\0\0WEBPVP8 ", b"",
]  # fmt: skip

T = TypeVar("T")


def outcome(read: Callable[[], T]) -> T | InferenceError:
    try:
        return read()
    except InferenceError as error:
        return error


@given(st.sampled_from(STARTS), st.binary(max_size=200))
def test_any_bytes_after_a_signature_give_a_size_or_an_error(start: bytes, content: bytes) -> None:
    result = outcome(lambda: image_size(start + content))
    if isinstance(result, InferenceError):
        assert result.kind is ErrorKind.INVALID_REQUEST
        assert result.message.startswith(
            ("Expected an encoded image", "The image is a JPEG without", "AVIF and JPEG 2000", "HEIC and HEIF images")
        )
    else:
        assert min(result) >= 0


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(
    "brands", [b"heic\0\0\0\0mif1heic", b"mif1\0\0\0\0mif1heic", b"msf1\0\0\0\0msf1hevc", b"heix\0\0\0\0heixmif1"]
)
def test_heic_is_rejected_with_the_advice_to_convert(brands: bytes, allowed: bool) -> None:
    with pytest.raises(InferenceError, match="HEIC and HEIF images are not decoded; convert them to JPEG or PNG first"):
        image_size(b"\0\0\0\x18ftyp" + brands + b"\0\0\0\0meta", allow_avif_jpeg2000=allowed)


def test_avif_with_a_brand_of_heif_is_read_as_avif() -> None:
    data = encode_image(rectangle(64, 48), "AVIF").replace(b"ftypavif", b"ftypmif1", 1)
    assert image_size(data, allow_avif_jpeg2000=True) == (64, 48)
    with pytest.raises(InferenceError, match="AVIF and JPEG 2000 images are disabled"):
        image_size(data)


@pytest.mark.parametrize(("allowed", "formats"), [(False, "GIF), got"), (True, "GIF, AVIF, JPEG 2000), got")])
def test_list_of_formats_has_avif_and_jpeg2000_if_they_are_enabled(allowed: bool, formats: str) -> None:
    with pytest.raises(InferenceError) as caught:
        image_size(b"nothing", allow_avif_jpeg2000=allowed)
    assert formats in caught.value.message


@given(st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"]), st.data())
def test_damaged_file_is_decoded_or_rejected(file_format: str, data: st.DataObject) -> None:
    content = bytearray(encode_image(rectangle(32, 24), file_format))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    size = outcome(lambda: image_size(bytes(content)))
    if isinstance(size, InferenceError) or size[0] * size[1] > 100_000:
        return
    result = outcome(lambda: decode_image(bytes(content)))
    if isinstance(result, InferenceError):
        assert result.kind is ErrorKind.INVALID_REQUEST
    else:
        assert result.width * result.height == size[0] * size[1], "what the header says is what is decoded"


def jpeg(*segments: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segments)


def segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(payload) + 2) + payload


def frame(marker: int, width: int, height: int) -> bytes:
    return segment(marker, struct.pack(">BHHB", 8, height, width, 3) + bytes(9))


@pytest.mark.parametrize("marker", [0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCF])
def test_every_kind_of_jpeg_frame_is_read(marker: int) -> None:
    assert image_size(jpeg(segment(0xE0, b"JFIF\0"), frame(marker, 640, 480))) == (640, 480)


@pytest.mark.parametrize(
    "before",
    [
        *(frame(marker, 1, 1) for marker in (0xC4, 0xC8, 0xCC, 0xDB, 0xE1, 0xFE)),
        segment(0xE1, b"Exif\0\0" + jpeg(frame(0xC0, 160, 120))),
        segment(0xE0, b"JFIF\0") + b"\xff\xff\xff",
    ],
)
def test_segments_and_fill_bytes_before_a_jpeg_frame_are_skipped(before: bytes) -> None:
    assert image_size(jpeg(before, frame(0xC0, 640, 480))) == (640, 480)


def test_sizes_are_unsigned() -> None:
    assert image_size(jpeg(frame(0xC0, 65535, 65500))) == (65535, 65500)
    huge = struct.pack(">I4sII", 13, b"IHDR", 2**31, 2**32 - 1)
    assert image_size(PNG + huge) == (2**31, 2**32 - 1)
