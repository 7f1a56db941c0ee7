"""Small TIFFs for which a decoder allocates memory as for huge images, and ordinary files."""

import struct
import zlib
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest

from tasks.inference.error import ErrorKind
from tasks.vision.tiff import check_tags, tags, tile_pixels
from tests.support.data.images import encode_image, rectangle
from tests.support.rejection import rejects
from tests.tasks.vision.test_decompression_bombs import read, rejection
from tests.tasks.vision.test_image_decoding import save_image

Entry = tuple[int, int, int, int]
GREY = rectangle(colour=(128, 128, 128))


def tiff(entries: list[Entry], tail: bytes = b"") -> bytes:
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + bytes(4) + tail


def tiled(side: int) -> bytes:
    """Return a TIFF of 8x8 pixels in one tile of `side` by `side`."""
    tile = zlib.compress(bytes(side * side), 9)
    shorts = [(256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 1)]
    at = 8 + 2 + 10 * 12 + 4
    return tiff([*shorts, (322, 4, 1, side), (323, 4, 1, side), (324, 4, 1, at), (325, 4, 1, len(tile))], tile)


def test_tile_of_a_tiff_counts_toward_max_pixels() -> None:
    assert read(tiled(256))[0].pixels.shape == (8, 8, 3)
    assert tile_pixels(tiled(256)) == 256 * 256
    error = rejection(tiled(256), max_pixels=65_343)
    assert (error.kind, error.path) == (ErrorKind.TOO_LARGE, "inputs[0].data[0]")
    assert error.message == "Expected an image of at most 65,343 pixels (--max-pixels), got 8x8 that hides 65,344 more"
    assert rejection(tiled(256), 3, max_request_pixels=150_000).path == "inputs[0].data[2]"


@pytest.mark.parametrize("step", [1, 7])
def test_truncated_file_is_left_to_the_decoder(step: int) -> None:
    for data in (tiled(16), b"MM\0+" + tiled(16)[4:]):
        for cut in range(0, len(data), step):
            check_tags(data[:cut])
            assert tile_pixels(data[:cut]) <= tile_pixels(data)


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM"])
def test_other_formats_have_no_tiles(file_format: str) -> None:
    assert tile_pixels(encode_image(GREY, file_format)) == 0
    check_tags(encode_image(GREY, file_format))


def test_tags_larger_than_the_file_are_rejected() -> None:
    size = 2_000_000
    ordinary = tiff([(256, 3, 1, 8), (40_000, 1, size, 100), (40_001, 1, size, 100)], bytes(size))
    check_tags(ordinary)
    bomb = tiff([(256, 3, 1, 8), *((40_000 + number, 1, size, 100) for number in range(3))], bytes(size))
    with rejects("its tags declare 6,000,002"):
        check_tags(bomb)
    original = encode_image(GREY, "TIFF")
    at = struct.unpack_from("<I", original, 4)[0]
    struct.pack_into("<I", changed := bytearray(original), at + 2 + 4, 1 << 31)
    assert rejection(bytes(changed)).kind is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize("options", [{}, {"big_tiff": True}, {"compression": "tiff_lzw"}])
@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "I;16", "CMYK"])
def test_tags_of_ordinary_tiffs_are_read(mode: str, options: dict[str, Any]) -> None:
    data = save_image(PIL.Image.new(mode, (70, 50)), "TIFF", **options)
    check_tags(data)
    assert (tags(data)[256], tags(data)[257], tile_pixels(data)) == (70, 50, 0)


@pytest.mark.parametrize("order", "<>")
def test_tags_are_read_in_both_byte_orders_and_the_first_counts(order: str) -> None:
    entries = [(274, 3, 1, b"\0\6" if order == ">" else b"\6\0"), (274, 3, 1, b"\1\1")]
    body = b"".join(struct.pack(f"{order}HHI2s2x", *entry) for entry in entries)
    data = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, 2) + body + bytes(4)
    assert tags(data) == {274: 6}


def test_only_the_first_page_of_a_tiff_counts() -> None:
    pages = [PIL.Image.new("L", (900, 900)), PIL.Image.new("L", (30, 20))]
    data = encode_image(GREY, "TIFF", save_all=True, append_images=pages)
    assert read(data, max_pixels=64 * 48)[0].pixels.shape == (48, 64, 3)


@pytest.mark.parametrize("file_format", ["AVIF", "JPEG2000"])
def test_format_without_bounded_memory_is_decoded_only_if_allowed(file_format: str) -> None:
    data = encode_image(GREY, file_format)
    error = rejection(data)
    assert (error.kind, error.path) == (ErrorKind.INVALID_REQUEST, "inputs[0].data[0]")
    assert "--allow-avif-jpeg2000" in error.message
    assert read(data, allow_avif_jpeg2000=True)[0].pixels.shape == (48, 64, 3)
    assert rejection(data, allow_avif_jpeg2000=True, max_pixels=3000).kind is ErrorKind.TOO_LARGE


def test_images_written_by_opencv_are_read() -> None:
    pixels = np.zeros((48, 64, 3), np.uint8)
    for extension in (".tiff", ".webp", ".gif", ".ppm", ".pgm", ".pbm"):
        image = pixels if extension not in (".pgm", ".pbm") else pixels[:, :, 0]
        assert read(cv2.imencode(extension, image)[1].tobytes(), max_pixels=64 * 48)[0].pixels.shape == (48, 64, 3)
