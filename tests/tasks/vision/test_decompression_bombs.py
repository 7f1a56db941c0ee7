"""Small images that would keep a decoder busy are rejected quickly; ordinary ones are accepted."""

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, nullcontext
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.vision.decompression_bombs import check_chunks, check_png, max_decompressed_bytes, strip_text_chunks
from tasks.vision.header import image_size, jpeg_header
from tasks.vision.image import Image, decode_image
from tasks.vision.request import PixelBudget, read_images
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input
from tests.support.rejection import rejects

NOISE = np.random.default_rng(3).integers(0, 256, (40, 60, 3), np.uint8)


def jpeg(*options: int) -> bytes:
    return cv2.imencode(".jpg", NOISE, list(options))[1].tobytes()


PROGRESSIVE = jpeg(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
SCANS = PROGRESSIVE.count(b"\xff\xda")


def with_scans(count: int) -> bytes:
    """Return a progressive JPEG that repeats its last scan, without pixels, up to `count` scans."""
    last = PROGRESSIVE.rfind(b"\xff\xda")
    return PROGRESSIVE[:-2] + PROGRESSIVE[last : last + 10] * (count - SCANS) + b"\xff\xd9"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int, parts: Iterable[bytes], *, interlaced: bool = False) -> bytes:
    """Return a PNG whose compressed pixels are in one chunk for each part."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunk(b"IDAT", part) for part in parts) + chunk(b"IEND", b"")


def png(width: int, height: int, content: bytes, *, chunks: int = 1, interlaced: bool = False) -> bytes:
    packed = zlib.compress(content, 9)
    size = -(-len(packed) // chunks)
    parts = (packed[at : at + size] for at in range(0, len(packed), size))
    return png_of(width, height, parts, interlaced=interlaced)


def read(data: bytes, count: int = 1, **limits: Any) -> list[Image]:
    return read_images(file_input(*[data] * count), PixelBudget(Limits(**limits)), "inputs[0]")


def rejection(data: bytes, count: int = 1, **limits: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        read(data, count, **limits)
    return caught.value


@contextmanager
def decoded_lengths() -> Generator[list[int]]:
    """Collect the number of bytes that each call of OpenCV's decoder gets."""
    lengths: list[int] = []
    decode = cv2.imdecode

    def counting(data: NDArray[np.uint8], flags: int) -> Any:
        lengths.append(len(data))
        return decode(data, flags)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cv2, "imdecode", counting)
        yield lengths


@contextmanager
def allocated() -> Generator[Callable[[], int]]:
    """Measure the maximum of bytes that Python held at once."""
    tracemalloc.start()
    try:
        yield lambda: peak
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def test_jpeg_with_too_many_scans_is_rejected() -> None:
    assert 2 < SCANS < Limits().max_image_scans
    read(PROGRESSIVE)
    read(PROGRESSIVE, max_image_scans=SCANS)
    with decoded_lengths() as lengths:
        error = rejection(PROGRESSIVE, max_image_scans=SCANS - 1)
    assert lengths == [], "it is rejected before it is decoded"
    assert (error.kind, error.path) == (ErrorKind.TOO_LARGE, "inputs[0].data[0]")
    assert error.message == f"Expected at most {SCANS - 1} scans in a JPEG (--max-image-scans), got more"
    jpeg_header(with_scans(64), 64)
    with pytest.raises(InferenceError, match="at most 64 scans"):
        jpeg_header(with_scans(65), 64)


def with_segment(marker: bytes, position: int) -> bytes:
    """Return the progressive JPEG with a segment that looks like scans."""
    return PROGRESSIVE[:position] + marker + struct.pack(">H", 2 + 300) + b"\xff\xda" * 150 + PROGRESSIVE[position:]


@pytest.mark.parametrize(
    ("data", "scans"),
    [
        (jpeg() + b"\xff\xda" * 1000, 1),
        # Phones append videos and second images to their images.
        (PROGRESSIVE + b"\xff\xda" * 1000, SCANS),
        *(
            (with_segment(marker, position), SCANS)
            for marker in (b"\xff\xe1", b"\xff\xfe")
            for position in (2, PROGRESSIVE.rfind(b"\xff\xda"))
        ),
    ],
    ids=["baseline", "after the end", "thumbnail", "thumbnail between scans", "comment", "comment between scans"],
)
def test_bytes_that_are_no_scan_are_not_counted(data: bytes, scans: int) -> None:
    assert jpeg_header(data, scans) == (60, 40, 1)
    read(data, max_image_scans=scans)


@pytest.mark.parametrize(
    "between", [b"\0", b"\0\xff\0", b"\xff\1", b"\xff\xd0", b"\xff" * 100, b"\xff\xfe\0\2" * 300, b"\xff\xfe\0\0"]
)
def test_bytes_before_a_marker_do_not_hide_scans(between: bytes) -> None:
    scan = PROGRESSIVE.index(b"\xff\xda")
    for at in (scan, PROGRESSIVE.rfind(b"\xff\xda")):
        with pytest.raises(InferenceError, match="scans in a JPEG"):
            jpeg_header(PROGRESSIVE[:at] + between + PROGRESSIVE[at:], SCANS - 1)


def test_jpeg_with_thousands_of_segments_is_rejected() -> None:
    scan = PROGRESSIVE.index(b"\xff\xda")
    comments = PROGRESSIVE[:scan] + b"\xff\xfe\0\2" * 5000 + PROGRESSIVE[scan:]
    assert rejection(comments).message == "The image is a JPEG of more than 4,096 segments"
    for filling in (b"\xff\xd0", b"\xff"):
        endless = PROGRESSIVE[:scan] + filling * 2_000_000 + b"\0"
        assert rejection(endless, max_image_scans=1).kind is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize("cut", range(0, len(PROGRESSIVE), 97))
def test_truncated_jpeg_is_left_to_the_decoder(cut: int) -> None:
    frame = PROGRESSIVE.index(b"\xff\xc2")
    with nullcontext() if cut > frame + 10 else pytest.raises(InferenceError, match="without a frame header"):
        assert jpeg_header(PROGRESSIVE[:cut], SCANS) == jpeg_header(PROGRESSIVE)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("chunks", [1, 7])
def test_png_with_more_data_than_pixels_is_rejected(interlaced: bool, chunks: int) -> None:
    rows = b"".join(b"\0" + bytes(3 * 9) for _ in range(9))
    check_png(png(9, 9, rows, interlaced=interlaced, chunks=chunks))
    check_png(png(9, 9, rows + bytes(1 << 20), interlaced=interlaced, chunks=chunks))
    with rejects("a PNG of more data than pixels"):
        check_png(png(9, 9, rows + bytes(3 << 20), interlaced=interlaced, chunks=chunks))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(1, 1), (7, 3), (64, 65)])
def test_ordinary_pngs_are_accepted(mode: str, size: tuple[int, int]) -> None:
    file = io.BytesIO()
    PIL.Image.new(mode, size).save(file, "PNG")
    check_png(file.getvalue())
    assert max_decompressed_bytes(file.getvalue()) > 0


def test_only_suspicious_pngs_are_inflated_before_decoding() -> None:
    bomb = png(8, 8, bytes(8_000_000))
    assert max_decompressed_bytes(bomb) > 8_000_000
    assert max_decompressed_bytes(jpeg()) == 0
    # The decoder may inflate what the pixel budget of the request allows anyway.
    read(bomb, max_request_pixels=10_000_000)
    assert "more data than pixels" in rejection(bomb, max_request_pixels=1000).message
    assert rejection(bomb, 10, max_request_pixels=5_000_000).path != "inputs[0].data[0]"


@pytest.mark.parametrize("damage", [b"", b"\x89PNG\r\n\x1a\n", png(8, 8, b"")[:40], png(8, 8, bytes(200))[:-20]])
def test_truncated_png_is_left_to_the_decoder(damage: bytes) -> None:
    check_png(damage)
    check_png(png(8, 8, bytes(200)).replace(b"IDAT\x78", b"IDAT\x79"))


@pytest.mark.slow
def test_png_bomb_is_rejected_without_inflating_it() -> None:
    packer = zlib.compressobj(9)
    block = bytes(10_000_000)
    packed = b"".join(packer.compress(block) for _ in range(30)) + packer.flush()
    bomb = png_of(8, 8, [packed])
    with decoded_lengths() as lengths, allocated() as peak:
        assert rejection(bomb, 200, max_request_pixels=1_000_000).path == "inputs[0].data[0]"
    assert lengths == []
    assert peak() < 30_000_000, "it inflates to 300 MB"


def with_texts(data: bytes, text: bytes, count: int) -> bytes:
    return data[:33] + text * count + data[33:]


def test_texts_and_profiles_in_a_png_are_not_inflated() -> None:
    image, packed = encode_image(NOISE, "PNG"), zlib.compress(bytes(7_000_000), 9)
    starts = {b"zTXt": b"a\0\0", b"iTXt": b"a\0\1\0\0\0", b"iCCP": b"a\0\0"}
    text, *others = (chunk(kind, start + packed) for kind, start in starts.items())
    for one in (text, *others):
        assert strip_text_chunks(with_texts(image, one, 3)) == strip_text_chunks(image + one) == image
    with decoded_lengths() as lengths:
        read(with_texts(image, text, 50))
    assert lengths == [len(image)]
    assert strip_text_chunks(jpeg() + text) == jpeg() + text
    assert "more than 65,536 chunks" in rejection(with_texts(image, chunk(b"zTXt", b""), 70_000)).message


@pytest.mark.parametrize("cut", [8, 20, 34, 60, 900, 3000])
def test_texts_in_a_truncated_png_are_removed(cut: int) -> None:
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(b"text"))
    image = with_texts(encode_image(NOISE, "PNG"), text, 1)
    assert strip_text_chunks(image[:cut]) in (image[:cut], image[:33] + image[33 + len(text) : cut])


@pytest.mark.parametrize("side", [(41, 1), (1, 41)])
def test_image_with_a_too_long_side_is_rejected(side: tuple[int, int]) -> None:
    image = encode_image(np.zeros((side[1], side[0], 3), np.uint8))
    read(image, max_image_side=41)
    error = rejection(image, max_image_side=40)
    assert error.kind is ErrorKind.TOO_LARGE
    assert error.message.startswith(
        f"Expected an image of at most 40 pixels in width and height (--max-image-side), got {side[0]}x"
    )


def test_gif_size_is_read_without_its_comments() -> None:
    gif = encode_image(rectangle(40, 24), "GIF")
    at = gif.index(b",\0\0\0\0")
    commented = gif[:at] + b"!\xfe" + b"\x01a" * 5_000_000 + b"\0" + gif[at:]
    with allocated() as peak:
        assert image_size(commented) == image_size(gif) == (40, 24)
    assert peak() < 1_000_000
    assert decode_image(gif).pixels.shape == (24, 40, 3)


def test_long_comment_in_a_portable_pixmap_is_rejected() -> None:
    assert image_size(b"P6\n# hello\n2 3\n255\n" + bytes(18)) == (2, 3)
    # Reading the whole comment would find the size after it.
    with rejects("Expected an encoded image"):
        image_size(b"P6\n2 #" + b"a" * 20_000_000 + b"\n3\n255\n" + bytes(18))


@pytest.mark.parametrize(
    "header",
    [b"P4 8#32000 \n 8 \n", b"P4\n8 8#32000\n ", b"P5 # a\n#b\n8#32000 255\n 8 255\n", b"Pf 8#x 30000 -1\n 8 -1\n"],
)
def test_comment_within_a_number_of_a_portable_pixmap_is_rejected(header: bytes) -> None:
    with rejects("Expected an encoded image"):
        image_size(header + bytes(32_000))


@pytest.mark.parametrize("header", [b"P6 2 3 255\n", b"P6\n#a\n#b\r2 #c\n\t3\n255\n", b"P6 #\n2\n3 # height\n255\n"])
def test_comments_between_numbers_of_a_portable_pixmap_are_skipped(header: bytes) -> None:
    data = header + bytes(18)
    assert image_size(data) == (2, 3)
    assert decode_image(data).pixels.shape == (3, 2, 3)


def test_exif_data_in_many_segments_is_read_once() -> None:
    segment = b"\xff\xe1\xff\xffExif\0\0" + bytes(65_535 - 8)
    data = jpeg()[:2] + segment * 300 + jpeg()[2:]
    with allocated() as peak:
        assert image_size(data) == (60, 40)
    assert peak() < 1_000_000, "each segment has 64 kB"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_size_of_a_jpeg_decides_how_it_is_downscaled(orientation: int) -> None:
    exif, file, requested = PIL.Image.Exif(), io.BytesIO(), list[tuple[int, int]]()
    exif[0x0112] = orientation
    PIL.Image.fromarray(rectangle(40, 24)).save(file, "JPEG", exif=exif)

    def downscale(width: int, height: int) -> float:
        requested.append((width, height))
        return 4.0

    (image,) = read(file.getvalue(), downscale=downscale)
    assert requested == [(image.width, image.height)] == [decode_image(file.getvalue()).pixels.shape[1::-1]]


@pytest.mark.parametrize("length", [2**32 - 1, 1000])
def test_chunk_that_ends_after_the_file_is_rejected(length: int) -> None:
    start = encode_image(rectangle())[:33]
    with pytest.raises(InferenceError, match="ends after the file"):
        decode_image(start + struct.pack(">I4s", length, b"IDAT") + b"a" * 60)
    check_chunks(encode_image(rectangle()) + b"\xff" * 40)
