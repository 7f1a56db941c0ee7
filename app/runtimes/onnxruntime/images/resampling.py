"""Resize images with the filters of Pillow or OpenCV, which give different pixels."""

from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "area"]
_MAX_CROPPED_RATIO = 16
"""Maximum ratio of resized to kept pixels for which all are resized: of a thin strip, very little is kept."""

Antialias = bool | Literal["fast"]
Window = tuple[int, int, int, int]
"""Left, top, right and bottom of the kept part of a resized image, pixels."""

_PILLOW: dict[Interpolation, int] = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "area": 4}
"""Numbers of `PIL.Image.Resampling`, which model files use too. Pillow takes 7 MB, so it is imported when needed."""

_OPENCV: dict[Interpolation, int] = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
    "area": cv2.INTER_AREA,
}
_NAMES: dict[str, Interpolation] = {"box": "area"}
for _name, _number in _PILLOW.items():
    _NAMES[_name] = _NAMES[str(_number)] = _name


def pillow_filter(value: object) -> Interpolation | None:
    """Return the interpolation for Pillow's number or name of a filter; None for other values."""
    return _NAMES.get(str(value).lower())


def resize_window(
    pixels: NDArray[np.uint8],
    size: tuple[int, int],
    window: Window,
    interpolation: Interpolation,
    antialias: Antialias,
) -> NDArray[np.uint8]:
    """Resize an image, and return a part of the result.

    Args:
        pixels: (rows, columns, 3).
        size: (height, width) of the whole resized image.
        window: the part to return.
        interpolation: the filter.
        antialias: true for Pillow, whose filters cover all pixels of a downscaled image; false for OpenCV, whose
            filters do not; `fast` to halve long sides with OpenCV before its filter.
    """
    left, top, right, bottom = window
    height, width = size
    if antialias is True and pixels.shape[:2] != size:
        import PIL.Image

        image = PIL.Image.fromarray(pixels)
        kept = (bottom - top) * (right - left)
        if interpolation == "area" and height * width <= _MAX_CROPPED_RATIO * kept:
            # Rounding of the corners of a box would move this filter's sharp edges to other pixels.
            return np.asarray(image.resize((width, height), _PILLOW[interpolation]))[top:bottom, left:right]
        # Compute only the kept part. Pillow's filters still read the pixels around it.
        rows, columns = pixels.shape[:2]
        across, down = columns / width, rows / height
        box = (left * across, top * down, min(right * across, columns), min(bottom * down, rows))
        return np.asarray(image.resize((right - left, bottom - top), _PILLOW[interpolation], box))
    resized: NDArray[Any] = pixels
    while antialias == "fast":
        full_height, full_width = resized.shape[:2]
        half_width = (full_width + 1) // 2 if full_width >= 2 * width else full_width
        half_height = (full_height + 1) // 2 if full_height >= 2 * height else full_height
        if (half_width, half_height) == (full_width, full_height):
            break
        resized = cv2.resize(resized, (half_width, half_height), interpolation=cv2.INTER_LINEAR)
    if resized.shape[:2] != size:
        resized = cv2.resize(resized, (width, height), interpolation=_OPENCV[interpolation])
    return np.asarray(resized[top:bottom, left:right], np.uint8)


def resize_floats(pixels: NDArray[np.uint8], size: tuple[int, int], window: Window) -> NDArray[np.float32]:
    """Resize an image bilinearly without antialiasing and without rounding to bytes, and return a part of the result.

    Args:
        pixels: (rows, columns, 3).
        size: (height, width) of the whole resized image.
        window: the part to return.

    Returns:
        Pixels in 0..255.
    """
    left, top, right, bottom = window
    height, width = size
    rows = pixels.shape[0]
    # Blend the rows first: converting all rows of a large photo would need a gigabyte.
    centres = np.clip((np.arange(top, bottom) + 0.5) * (rows / height) - 0.5, 0, rows - 1)
    upper = centres.astype(np.intp)
    blended = pixels[upper].astype(np.float32)
    weights = (centres - upper).astype(np.float32)[:, np.newaxis, np.newaxis]
    blended += (pixels[np.minimum(upper + 1, rows - 1)] - blended) * weights
    resized = np.asarray(cv2.resize(blended, (width, bottom - top), interpolation=cv2.INTER_LINEAR), np.float32)
    return resized[:, left:right]
