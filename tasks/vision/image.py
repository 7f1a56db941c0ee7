"""The one place where encoded or raw pixels become an image."""

import contextlib
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.tensor import Tensor
from tasks.vision.header import image_size

__all__ = ("Image", "decode_image", "images_from_tensor")


class Image(msgspec.Struct, frozen=True, eq=False):
    """An upright picture. Every box and contour of its answer is in pixels of this array.

    Attributes:
        pixels: (height, width, 3) uint8, RGB, EXIF orientation applied.
    """

    pixels: NDArray[np.uint8]

    @property
    def height(self) -> int:
        """Rows."""
        return self.pixels.shape[0]

    @property
    def width(self) -> int:
        """Columns."""
        return self.pixels.shape[1]


def decode_image(data: bytes, max_pixels: int) -> Image:
    """Decode any still image that OpenCV knows: first frame, 8 bits a channel, alpha dropped, EXIF orientation applied.

    Raises:
        InferenceError: INVALID_REQUEST when the bytes are not a whole image, TOO_LARGE when its header announces more
            than `max_pixels`.
    """
    width, height = image_size(data)
    _check_size(width, height, max_pixels)
    pixels: Any = None
    with contextlib.suppress(cv2.error):
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    if pixels is None:
        raise invalid(
            f"The image cannot be decoded: its header says {width}x{height}, its data is truncated or damaged"
        )
    return Image(pixels)


def images_from_tensor(tensor: Tensor, max_pixels: int) -> list[Image]:
    """Read raw pixels: shape [h, w], [h, w, c] or [n, h, w, c] with 1, 3 or 4 channels, RGB order, alpha dropped.

    UINT8 and the other integers are 0..255, UINT16 is 16 bits deep, floating-point pixels are 0..1.

    Raises:
        InferenceError: INVALID_REQUEST for another shape or a value out of range, TOO_LARGE as `decode_image`.
    """
    array = tensor.data
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim == 3:
        array = array[np.newaxis]
    if array.ndim != 4 or array.shape[3] not in (1, 3, 4):
        expected = "[h, w], [h, w, 3] or [n, h, w, 3]"
        raise invalid(f"Expected raw pixels of shape {expected}, got {list(tensor.shape)}", "shape")
    _check_size(array.shape[2], array.shape[1], max_pixels)
    pixels = _as_uint8(array)
    if array.shape[3] == 1:
        pixels = np.repeat(pixels, 3, axis=3)
    return [Image(np.ascontiguousarray(each[:, :, :3])) for each in pixels]


def _as_uint8(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    top = 1.0 if array.dtype.kind == "f" else 255
    if array.size and not (array.min() >= 0 and array.max() <= top):
        found = f"{array.min()}..{array.max()}"
        advice = "; send 0..255 pixels as UINT8" if array.dtype.kind == "f" else ""
        raise invalid(f"Expected {array.dtype} pixels within 0..{top:g}, got {found}{advice}", "data")
    if array.dtype.kind == "f":
        return np.rint(array * 255).astype(np.uint8)
    return array.astype(np.uint8)


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise invalid(f"Expected an image of at least 1x1 pixels, got {width}x{height}")
    if width * height > max_pixels:
        message = f"Expected an image of at most {max_pixels:,} pixels, got {width}x{height} = {width * height:,}"
        raise InferenceError(ErrorKind.TOO_LARGE, message)
