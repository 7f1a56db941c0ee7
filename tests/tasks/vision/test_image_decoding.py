"""Decoding of images, compared with Pillow."""

import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
from numpy.typing import NDArray

from tasks.inference.error import InferenceError
from tasks.vision.header import image_size
from tasks.vision.image import decode_image
from tests.support.data.images import encode_image

LOSSLESS = {"WEBP": {"lossless": True}}


def scene(width: int = 40, height: int = 24) -> NDArray[np.uint8]:
    """Return a smooth coloured image that differs from all its rotations and flips."""
    corners = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    return np.asarray(cv2.resize(corners, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


def image_in_mode(mode: str) -> PIL.Image.Image:
    image = PIL.Image.fromarray(scene()).convert(mode)
    if mode in ("LA", "RGBA"):
        ramp = np.tile(np.linspace(0, 255, 40).astype(np.uint8), (24, 1))
        image.putalpha(PIL.Image.fromarray(ramp))
    return image


def save_image(image: PIL.Image.Image, file_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def exif_of(orientation: int) -> PIL.Image.Exif:
    exif = PIL.Image.Exif()
    exif[0x112] = orientation
    return exif


def by_pillow(data: bytes) -> NDArray[np.uint8]:
    """Decode the first frame with Pillow, upright and without alpha."""
    image = PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(data)))
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        image = image.convert("RGBA")
    return np.asarray(image.convert("RGB"))


def assert_same(data: bytes, expected: NDArray[np.uint8], tolerance: int = 0) -> None:
    image = decode_image(data)
    assert image.pixels.dtype == np.uint8
    assert image.pixels.shape == expected.shape
    assert (image.height, image.width) == expected.shape[:2]
    assert np.abs(image.pixels.astype(int) - expected).max() <= tolerance
    assert expected.std() > 10, "a flat image would prove nothing"


@pytest.mark.parametrize(
    ("file_format", "mode"),
    [
        (file_format, mode)
        for file_format in ("PNG", "WEBP", "BMP", "GIF", "TIFF")
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA")
        if (file_format, mode) not in {("BMP", "LA"), ("TIFF", "RGBA")}
    ],
)
def test_lossless_formats_and_modes_decode_exactly(file_format: str, mode: str) -> None:
    data = save_image(image_in_mode(mode), file_format, **LOSSLESS.get(file_format, {}))
    assert_same(data, by_pillow(data))


@pytest.mark.parametrize(
    ("file_format", "mode", "options"),
    [
        *(
            ("JPEG", mode, options)
            for mode in ("RGB", "L", "CMYK")
            for options in ({}, {"progressive": True}, {"subsampling": 0}, {"quality": 30})
        ),
        ("WEBP", "RGB", {"quality": 80}),
        *(("TIFF", "RGB", {"compression": name}) for name in ("raw", "tiff_lzw", "tiff_deflate", "packbits", "jpeg")),
        ("TIFF", "CMYK", {}),
    ],
    ids=str,
)
def test_lossy_formats_and_options_decode_like_pillow(file_format: str, mode: str, options: dict[str, Any]) -> None:
    data = save_image(image_in_mode(mode), file_format, **options)
    assert_same(data, by_pillow(data), tolerance=3)


@pytest.mark.parametrize("transparency", [3, bytes(range(256))], ids=["one colour", "every colour its own"])
def test_transparency_of_a_palette_is_dropped(transparency: int | bytes) -> None:
    data = save_image(image_in_mode("P"), "PNG", transparency=transparency)
    assert_same(data, np.asarray(image_in_mode("P").convert("RGB")))


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_16_bit_grey_keeps_the_upper_8_bits(file_format: str) -> None:
    deep = np.linspace(0, 65535, 40 * 24).astype(np.uint16).reshape(24, 40)
    expected = np.repeat((deep >> 8).astype(np.uint8)[:, :, np.newaxis], 3, axis=2)
    assert_same(encode_image(deep, file_format), expected, tolerance=1)


@pytest.mark.parametrize("ending", [".png", ".tiff"])
def test_16_bit_colour_keeps_the_upper_8_bits(ending: str) -> None:
    deep = scene().astype(np.uint16) * 256 + 77
    data = cv2.imencode(ending, deep[:, :, ::-1])[1].tobytes()
    assert_same(data, scene(), tolerance=1)


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "TIFF", "PNG"])
def test_first_of_several_frames_is_decoded(file_format: str) -> None:
    first, second = image_in_mode("RGB").quantize(64).convert("RGB"), PIL.Image.new("RGB", (40, 24), "white")
    options = LOSSLESS.get(file_format, {})
    data = save_image(first, file_format, save_all=True, append_images=[second], **options)
    assert_same(data, np.asarray(first), tolerance=2)


@pytest.mark.parametrize("orientation", range(1, 10))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied_and_an_invalid_one_ignored(file_format: str, orientation: int) -> None:
    options = {"quality": 95, "subsampling": 0} if file_format == "JPEG" else LOSSLESS.get(file_format, {})
    data = save_image(image_in_mode("RGB"), file_format, exif=exif_of(orientation), **options)
    expected = by_pillow(data)
    assert expected.shape[:2] == ((40, 24) if 5 <= orientation <= 8 else (24, 40))
    assert_same(data, expected, tolerance=3)
    assert image_size(data) == expected.shape[1::-1]
    # Only a JPEG is decoded at a fraction of its size.
    assert file_format == "JPEG" or decode_image(data, 4).full_size is None


@pytest.mark.parametrize("orientation", range(1, 9))
def test_avif_is_rotated_as_its_container_says(orientation: int) -> None:
    data = save_image(image_in_mode("RGB"), "AVIF", quality=100, exif=exif_of(orientation))
    expected = by_pillow(data)
    assert image_size(data, allow_avif_jpeg2000=True) == expected.shape[1::-1]
    assert_same(data, expected, tolerance=8)


def test_exif_is_read_wherever_its_format_permits() -> None:
    exif = exif_of(6).tobytes().removeprefix(b"Exif\0\0")
    png = encode_image(scene())
    chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif + struct.pack(">I", zlib.crc32(b"eXIf" + exif))
    jpeg = encode_image(scene(), "JPEG")
    segments = [
        b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body for body in (b"http\0" * 13_000, b"Exif\0\0" + exif)
    ]
    for data in (png[:33] + chunk + png[33:], png[:-12] + chunk + png[-12:], jpeg[:2] + b"".join(segments) + jpeg[2:]):
        assert decode_image(data).pixels.shape == (40, 24, 3)
        assert image_size(data) == (24, 40)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "exif", [b"Exif\0\0broken", b"Exif\0\0", exif_of(6).tobytes()[:-10]], ids=["text", "empty", "cut"]
)
def test_damaged_exif_is_ignored(file_format: str, exif: bytes) -> None:
    data = save_image(image_in_mode("RGB"), file_format, exif=exif)
    assert decode_image(data).pixels.shape == (24, 40, 3)
    assert image_size(data) == (40, 24)


def tiff_of_planes(planes: NDArray[np.uint8], orientation: int, order: str) -> bytes:
    """Return a TIFF of (samples, height, width) planes, stored one after the other, with unspecified extra samples."""
    samples, height, width = planes.shape
    numbers = {
        256: [width], 257: [height], 258: [8] * samples, 259: [1], 262: [2],
        273: [8192 + height * width * sample for sample in range(samples)], 274: [orientation], 277: [samples],
        278: [height], 279: [height * width] * samples, 284: [2], 338: [0] * (samples - 3),
    }  # fmt: skip
    entries, lists = b"", b""
    for tag, values in numbers.items():
        content = struct.pack(f"{order}{len(values)}H", *values)
        if len(content) > 4:
            lists, content = lists + content, struct.pack(f"{order}I", 4096 + len(lists))
        entries += struct.pack(f"{order}HHI", tag, 3, len(values)) + content.ljust(4, b"\0")
    start = struct.pack(f"{order}2sHIH", b"II" if order == "<" else b"MM", 42, 8, len(numbers))
    return ((start + entries).ljust(4096, b"\0") + lists).ljust(8192, b"\0") + planes.tobytes()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", "<>")
def test_tiff_of_separate_planes_is_decoded(order: str, orientation: int) -> None:
    planes = np.concatenate([scene().transpose(2, 0, 1), np.full((1, 24, 40), 255, np.uint8)])
    data = tiff_of_planes(planes, orientation, order)
    with pytest.raises(PIL.UnidentifiedImageError):
        PIL.Image.open(io.BytesIO(data))
    expected = by_pillow(save_image(PIL.Image.fromarray(scene()), "PNG", exif=exif_of(orientation)))
    assert_same(data, expected)
    assert image_size(data) == expected.shape[1::-1]


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (300, 2)], ids=str)
def test_size_in_the_header_equals_the_decoded_size(file_format: str, size: tuple[int, int]) -> None:
    data = encode_image(scene(*size), file_format)
    assert image_size(data) == size
    assert decode_image(data).pixels.shape == (size[1], size[0], 3)


@pytest.mark.parametrize("big_tiff", [False, True])
def test_colours_under_the_alpha_of_a_tiff_are_kept(big_tiff: bool) -> None:
    pixels = np.full((4, 4, 4), (200, 100, 50, 0), np.uint8)
    data = save_image(PIL.Image.fromarray(pixels), "TIFF", big_tiff=big_tiff)
    assert decode_image(data).pixels[0, 0].tolist() == [200, 100, 50]


@pytest.mark.parametrize("shrink", [2, 4, 8])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("size", [(160, 120), (163, 121)])
def test_jpeg_may_be_decoded_at_a_fraction_of_its_size(shrink: int, orientation: int, size: tuple[int, int]) -> None:
    data = save_image(PIL.Image.fromarray(scene(*size)), "JPEG", quality=95, exif=exif_of(orientation))
    full, small = decode_image(data), decode_image(data, shrink)
    assert (small.width, small.height) == (full.width, full.height)
    rows, columns = small.pixels.shape[:2]
    assert (rows, columns) == (-(-full.height // shrink), -(-full.width // shrink))
    expected = cv2.resize(full.pixels, (columns, rows), interpolation=cv2.INTER_AREA)
    assert np.abs(small.pixels.astype(int) - expected).mean() < 2 * shrink


def test_damaged_jpeg_is_rejected_when_downscaled() -> None:
    with pytest.raises(InferenceError, match="cannot be decoded"):
        decode_image(encode_image(scene(), "JPEG")[:300], 2)
