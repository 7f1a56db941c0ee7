"""Decode images, and read raw pixels."""

import io
from typing import Any, cast

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.tensor import Datatype, Tensor
from tasks.vision.decompression_bombs import check_chunks, strip_text_chunks
from tasks.vision.header import JPEG_START, ImageHeader, read_header
from tasks.vision.tiff import TIFF_STARTS

_REDUCED_FLAGS = {
    2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
    4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
    8: cv2.IMREAD_REDUCED_GRAYSCALE_8,
}
"""OpenCV's flags for decoding at a fraction of the sides; `_COLOUR_FLAGS` are added."""
_COLOUR_FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
_FLIPS = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}
"""OpenCV's flip for each orientation, after rows and columns are exchanged for those from 5."""


class Image(msgspec.Struct, frozen=True, eq=False):
    """An upright image: `pixels` (height, width, 3) uint8, RGB. Its answer is in pixels of the full-size image.

    `full_size` is the (height, width) of an image that was decoded at a fraction of its size, else None.
    """

    pixels: NDArray[np.uint8]
    full_size: tuple[int, int] | None = None

    @property
    def height(self) -> int:
        """Return the rows of the full-size image."""
        return self.full_size[0] if self.full_size else self.pixels.shape[0]

    @property
    def width(self) -> int:
        """Return the columns of the full-size image."""
        return self.full_size[1] if self.full_size else self.pixels.shape[1]


class ScoredTile(Image, frozen=True, eq=False):
    """A part of an image whose segmenter returns the scores of its pixels, if it has any, for averages of tiles."""


def image_of(item: object) -> Image | None:
    """Return the image of a task's decoded input, the first of several; None if it has none."""
    images = getattr(item, "images", None)
    if images is None:
        image = getattr(item, "image", None)
        return image if isinstance(image, Image) else None
    return images[0] if images else None


def check_size(width: int, height: int, max_pixels: int, max_side: int | None = None) -> None:
    """Reject an image that is empty or too large; `max_side` limits its width and height, None for no limit."""
    if width < 1 or height < 1:
        raise invalid(f"Expected an image of at least 1x1 pixels, got {width}x{height}")
    if max_side is not None and max(width, height) > max_side:
        expected = f"Expected an image of at most {max_side:,} pixels in width and height (--max-image-side)"
        raise InferenceError(ErrorKind.TOO_LARGE, f"{expected}, got {width}x{height}")
    if width * height > max_pixels:
        message = (
            f"Expected an image of at most {max_pixels:,} pixels (--max-pixels), "
            f"got {width}x{height} = {width * height:,}"
        )
        raise InferenceError(ErrorKind.TOO_LARGE, message)


def decode_image(data: bytes, shrink: int = 1, header: ImageHeader | None = None) -> Image:
    """Decode the first frame of an image with OpenCV: 8 bits per channel, no alpha, upright.

    A JPEG is decoded at the fraction 1 / `shrink` (1, 2, 4 or 8) of its sides, which is faster. Callers check the size
    first (`read_header`), and may pass the `header`. Raise INVALID_REQUEST if the image is incomplete or damaged.
    """
    header = header or read_header(data, allow_avif_jpeg2000=True)
    pixels: Any = None
    is_jpeg = data.startswith(JPEG_START)
    flags = _REDUCED_FLAGS[shrink] if is_jpeg and shrink > 1 else 0
    try:
        if not is_jpeg:
            check_chunks(data)
            data = strip_text_chunks(data)
            pixels = _tiff_with_alpha(data)
        if pixels is None:
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags | _COLOUR_FLAGS)
    except cv2.error:
        pixels = None
    if flags and pixels is None:
        return decode_image(data, header=header)
    if pixels is None:
        raise invalid("The image cannot be decoded: it is truncated or damaged, or its pixels are of an unusual kind")
    # OpenCV rotates a TIFF in any case.
    if header.orientation > 1 and data[:4] not in TIFF_STARTS:
        pixels = _upright(pixels, header.orientation)
    if not flags:
        return Image(pixels)
    width, height = header.upright_size
    return Image(pixels, (height, width))


def small_jpeg(pixels: NDArray[np.uint8], max_side: int, quality: int = 95) -> bytes:
    """Encode (height, width, 3) RGB pixels as a JPEG whose longer side has at most `max_side` pixels."""
    height, width = pixels.shape[:2]
    scale = max_side / max(width, height)
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        pixels = cast("NDArray[np.uint8]", cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    return cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)[1].tobytes()


def raw_size(tensor: Tensor) -> tuple[int, int, int, int]:
    """Return height, width, channels and number of the images in raw pixels. Raise INVALID_REQUEST for no images."""
    if tensor.datatype is Datatype.BF16:
        raise invalid("Expected raw pixels as UINT8, FP16 or FP32, got BF16", "datatype")
    shape = tensor.shape
    sizes = {2: (*shape, 1, 1), 3: (*shape, 1), 4: (*shape[1:], *shape[:1])}.get(len(shape))
    if sizes is None or sizes[2] not in (1, 3, 4):
        expected = "[h, w], [h, w, 3] or [n, h, w, 3]"
        raise invalid(f"Expected raw pixels of shape {expected}, got {quote_value(list(shape))}", "shape")
    if sizes[3] < 1:
        raise invalid(f"Expected at least one image, got {quote_value(list(shape))}", "shape")
    return sizes[0], sizes[1], sizes[2], sizes[3]


def images_from_tensor(tensor: Tensor) -> list[Image]:
    """Read raw pixels: shape [h, w], [h, w, c] or [n, h, w, c] with 1, 3 or 4 channels in RGB order. Alpha is dropped.

    UINT16 pixels are 0..65535, other integers 0..255, floating-point pixels 0..1. Raise INVALID_REQUEST for another
    shape or a value out of range.
    """
    height, width, channels, count = raw_size(tensor)
    pixels = _as_uint8(tensor.data.reshape(count, height, width, channels))
    if channels == 1:
        pixels = np.repeat(pixels, 3, axis=3)
    return [Image(np.ascontiguousarray(image_pixels[:, :, :3])) for image_pixels in pixels]


def _tiff_with_alpha(data: bytes) -> NDArray[np.uint8] | None:
    """Decode a TIFF with alpha by Pillow, because OpenCV multiplies colours by alpha; None for other images."""
    if data[:4] not in TIFF_STARTS:
        return None
    import PIL.Image
    import PIL.ImageOps

    try:
        with PIL.Image.open(io.BytesIO(data), formats=("TIFF",)) as image:
            if image.mode != "RGBA":
                return None
            return np.array(PIL.ImageOps.exif_transpose(image).convert("RGB"))
    except Exception:  # noqa: BLE001  if Pillow fails, OpenCV tries
        return None


def _upright(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return pixels without their Exif orientation, 2..8."""
    if orientation >= 5:
        pixels = cast("NDArray[np.uint8]", cv2.transpose(pixels))
    flip = _FLIPS.get(orientation)
    return pixels if flip is None else cast("NDArray[np.uint8]", cv2.flip(pixels, flip))


def _as_uint8(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    max_value = 1.0 if array.dtype.kind == "f" else 255
    if array.size and not (array.min() >= 0 and array.max() <= max_value):
        value_range = f"{array.min()}..{array.max()}"
        advice = "; send 0..255 pixels as UINT8" if array.dtype.kind == "f" else ""
        raise invalid(f"Expected {array.dtype} pixels within 0..{max_value:g}, got {value_range}{advice}", "data")
    if array.dtype.kind == "f":
        return np.rint(array * 255).astype(np.uint8)
    return array.astype(np.uint8)
