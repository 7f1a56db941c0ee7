"""Small files for which a decoder allocates memory as for huge images, and ordinary files."""

import contextlib
import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.bytes_elements import BinaryElement
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import BytesTensor
from tasks.vision.av1 import av1_pixels
from tasks.vision.decoder_memory import decoder_pixels
from tasks.vision.image import Image
from tasks.vision.request import PixelBudget, read_images
from tasks.vision.tiff_tags import check_tags, tags

Entry = tuple[int, int, int, int]
GREY = PIL.Image.new("RGB", (64, 48), "grey")


def encode(file_format: str, image: PIL.Image.Image = GREY, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def read(data: bytes, count: int = 1, **limits: Any) -> Image:
    tensor = BytesTensor(name="a", shape=(count,), elements=[BinaryElement(data)] * count)
    return read_images(tensor, PixelBudget(Limits(**limits)), "inputs[0]")[0]


def rejection(data: bytes, count: int = 1, **limits: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        read(data, count, **limits)
    return caught.value


def tiff(entries: list[Entry], tail: bytes = b"") -> bytes:
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + bytes(4) + tail


def tiled(side: int) -> bytes:
    """Return a TIFF of 8x8 pixels in one tile of `side` by `side`."""
    tile = zlib.compress(bytes(side * side), 9)
    shorts = [(256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 1)]
    at = 8 + 2 + 10 * 12 + 4
    return tiff([*shorts, (322, 4, 1, side), (323, 4, 1, side), (324, 4, 1, at), (325, 4, 1, len(tile))], tile)


def with_tiles(data: bytes, width: int, height: int, tile: int) -> bytes:
    """Return a JPEG 2000 file with another size and tile size in its header."""
    changed = bytearray(data)
    at = data.index(b"\xff\x4f\xff\x51")
    struct.pack_into(">8I", changed, at + 8, width, height, 0, 0, tile, tile, 0, 0)
    if (header := data.find(b"ihdr")) >= 0:
        struct.pack_into(">II", changed, header + 4, height, width)
    return bytes(changed)


def test_tile_of_a_tiff_counts_toward_max_pixels() -> None:
    assert read(tiled(256)).pixels.shape == (8, 8, 3)
    assert decoder_pixels(tiled(256)) == 256 * 256
    error = rejection(tiled(256), max_pixels=65_343)
    assert (error.kind, error.path) == (ErrorKind.TOO_LARGE, "inputs[0].data[0]")
    assert error.message == "Expected an image of at most 65,343 pixels, got 8x8 that hides 65,344 more"
    assert rejection(tiled(256), 3, max_request_pixels=150_000).path == "inputs[0].data[2]"


@pytest.mark.parametrize("boxed", [False, True])
def test_tiles_of_jpeg_2000_count_with_the_memory_of_the_decoder(boxed: bool) -> None:
    data = encode("JPEG2000", no_jp2=not boxed)
    assert decoder_pixels(data) == 4096
    assert read(data).pixels.shape == (48, 64, 3)
    many = with_tiles(data, 250, 250, 1)
    assert decoder_pixels(many) == 250 * 250 * 4096
    assert "got 250x250 that hides 255,812,500 more" in rejection(many).message
    assert read(with_tiles(data, 250, 250, 16)).pixels.shape == (250, 250, 3)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_avif_counts_the_pixels_of_its_frames(mode: str) -> None:
    data = encode("AVIF", PIL.Image.new(mode, (64, 48)))
    frames = 64 * 48 * (2 if mode == "RGBA" else 1)
    assert av1_pixels(data) == decoder_pixels(data) == frames
    assert read(data, max_pixels=64 * 48).pixels.shape == (48, 64, 3)


def test_avif_with_a_false_size_counts_its_frames() -> None:
    at = (data := encode("AVIF")).index(b"ispe")
    lying = data[: at + 8] + struct.pack(">II", 8, 8) + data[at + 16 :]
    hidden = 64 * 48 - 3 * 64
    assert "got 8x8 that hides 2,880 more" in rejection(lying, max_pixels=hidden - 1).message
    assert rejection(lying, 3, max_request_pixels=2 * (hidden + 64)).path == "inputs[0].data[2]"


def test_animated_avif_counts_its_samples() -> None:
    frames = [PIL.Image.new("RGB", (64, 48), colour) for colour in ("red", "blue")]
    data = encode("AVIF", GREY, save_all=True, append_images=frames)
    # The first frame counts as an item and as a sample of the track.
    assert av1_pixels(data) == 2 * 64 * 48
    assert read(data).pixels.shape == (48, 64, 3)


@pytest.mark.parametrize("step", [1, 7])
def test_truncated_file_is_left_to_the_decoder(step: int) -> None:
    for data in (encode("AVIF"), encode("JPEG2000"), tiled(16), b"MM\0+" + tiled(16)[4:]):
        for cut in range(0, len(data), step):
            check_tags(data[:cut])
            assert decoder_pixels(data[:cut]) <= decoder_pixels(data)


AVIF = encode("AVIF")


@given(st.lists(st.tuples(st.integers(0, len(AVIF) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_avif_is_read_or_rejected(changes: list[tuple[int, int]]) -> None:
    data = bytearray(AVIF)
    for at, byte in changes:
        data[at] = byte
    with contextlib.suppress(InferenceError):
        assert decoder_pixels(bytes(data)) >= 0


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM"])
def test_other_formats_need_no_extra_memory(file_format: str) -> None:
    assert decoder_pixels(encode(file_format)) == 0
    check_tags(encode(file_format))


def test_tags_larger_than_the_file_are_rejected() -> None:
    size = 2_000_000
    ordinary = tiff([(256, 3, 1, 8), (40_000, 1, size, 100), (40_001, 1, size, 100)], bytes(size))
    check_tags(ordinary)
    bomb = tiff([(256, 3, 1, 8), *((40_000 + number, 1, size, 100) for number in range(3))], bytes(size))
    with pytest.raises(InferenceError, match="its tags declare 6,000,002") as caught:
        check_tags(bomb)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    original = encode("TIFF")
    at = struct.unpack_from("<I", original, 4)[0]
    struct.pack_into("<I", changed := bytearray(original), at + 2 + 4, 1 << 31)
    assert rejection(bytes(changed)).kind is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize("options", [{}, {"big_tiff": True}, {"compression": "tiff_lzw"}])
@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "I;16", "CMYK"])
def test_tags_of_ordinary_tiffs_are_read(mode: str, options: dict[str, Any]) -> None:
    data = encode("TIFF", PIL.Image.new(mode, (70, 50)), **options)
    check_tags(data)
    assert (tags(data)[256], tags(data)[257], decoder_pixels(data)) == (70, 50, 0)


@pytest.mark.parametrize("order", "<>")
def test_tags_are_read_in_both_byte_orders_and_the_first_counts(order: str) -> None:
    entries = [(274, 3, 1, b"\0\6" if order == ">" else b"\6\0"), (274, 3, 1, b"\1\1")]
    body = b"".join(struct.pack(f"{order}HHI2s2x", *entry) for entry in entries)
    data = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, 2) + body + bytes(4)
    assert tags(data) == {274: 6}


def test_only_the_first_page_of_a_tiff_counts() -> None:
    pages = [PIL.Image.new("L", (900, 900)), PIL.Image.new("L", (30, 20))]
    data = encode("TIFF", GREY, save_all=True, append_images=pages)
    assert read(data, max_pixels=64 * 48).pixels.shape == (48, 64, 3)


def test_images_written_by_opencv_are_read() -> None:
    pixels = np.zeros((48, 64, 3), np.uint8)
    for extension in (".avif", ".jp2", ".tiff", ".webp", ".gif", ".ppm", ".pgm", ".pbm"):
        image = pixels if extension not in (".pgm", ".pbm") else pixels[:, :, 0]
        assert read(cv2.imencode(extension, image)[1].tobytes(), max_pixels=64 * 48).pixels.shape == (48, 64, 3)
