"""Convert images to the input tensor of a graph.

They are resized with the filters of Pillow or OpenCV, which give different pixels.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.images.placement import Fit, Placement, fit
from app.runtimes.onnxruntime.images.preprocessing import PILLOW_FILTERS, Antialias, Interpolation, Preprocessing
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image

_MAX_CROPPED_RATIO = 16
"""Maximum ratio of resized to kept pixels for which all are resized: of a thin strip, very little is kept."""

_OPENCV: dict[Interpolation, int] = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
    "area": cv2.INTER_AREA,
}

Window = tuple[int, int, int, int]
"""Left, top, right and bottom of the kept part of a resized image, pixels."""


class ImageBatcher:
    """Makes the input tensor of a graph. It keeps no state between calls, so any thread may call it.

    FP32 and FP16 inputs are normalised; UINT8 inputs contain the original pixel values. Their shape is
    [batch, 3, height, width], or [batch, height, width, 3] with `channels_last`.
    """

    def __init__(self, preprocessing: Preprocessing, datatype: Datatype, *, channels_last: bool = False) -> None:
        self._channels_last = channels_last
        self._preprocessing = preprocessing
        self._dtype = datatype.dtype
        self._channels = (2, 1, 0) if preprocessing.bgr else (0, 1, 2)
        # Crops of images that are too small are filled with black, as in torchvision and transformers.
        fill = preprocessing.fill if preprocessing.resize in ("letterbox", "pad", "line") else 0
        self._fit = partial(
            fit,
            resize=preprocessing.resize,
            # Pillow resizes only the kept part of a thin strip; OpenCV would resize all of it.
            cut=preprocessing.antialias is not True,
            half_even=preprocessing.crop_half_even,
            box_scale=preprocessing.box_scale,
        )
        pixels = np.arange(256, dtype=np.float64)
        # A byte has 256 values: a lookup is faster than arithmetic, and rounds once instead of three times.
        self._tables: list[NDArray[Any]] = [
            pixels.astype(np.uint8)
            if datatype is Datatype.UINT8
            else ((pixels * preprocessing.scale - preprocessing.mean[channel]) / preprocessing.std[channel]).astype(
                np.float32
            )
            for channel in self._channels
        ]
        fills = fill if isinstance(fill, tuple) else (fill,) * 3
        values = (fills[channel] for channel in self._channels)
        borders = [0 if value is None else table[value] for table, value in zip(self._tables, values, strict=True)]
        self._border: NDArray[Any] = np.array(borders, self._tables[0].dtype).reshape(3, 1, 1)
        # Rounding of the corners of a box would move the sharp edges of "area" to other pixels.
        self._whole = preprocessing.resizes_whole or preprocessing.interpolation == "area"

    def downscale(self, width: int, height: int) -> float:
        """Return the factor by which an image of this size, in pixels, is downscaled."""
        options = self._preprocessing
        fitted = self._fit((height, width), (options.height, options.width), shorter_side=options.shorter_side)
        return min((width - 2 * fitted.cut_x) / fitted.width, (height - 2 * fitted.cut_y) / fitted.height)

    def prepare(
        self, images: Sequence[Image], count: int, frame: tuple[int, int] | None = None
    ) -> tuple[NDArray[Any], list[Placement]]:
        """Return the input tensor, padded with zeros to `count` images, and the placement of each image.

        `frame` is the (height, width) of the tensor in pixels; by default that of the preprocessing.
        """
        options = self._preprocessing
        height, width = frame or (options.height, options.width)
        shape = (count, 3, height, width)
        batch: NDArray[Any] = np.empty(shape, self._tables[0].dtype)
        if count > len(images):
            batch[len(images) :] = 0
        placements: list[Placement] = []
        for image, planes in zip(images, batch, strict=False):
            shorter_side = options.shorter_side if frame is None else min(frame)
            fitted = self._fit(image.full_size or image.pixels.shape[:2], (height, width), shorter_side=shorter_side)
            self._write(image, fitted, planes)
            placements.append(fitted.placement)
        ordered = np.ascontiguousarray(batch.transpose(0, 2, 3, 1)) if self._channels_last else batch
        return ordered.astype(self._dtype, copy=False), placements

    def _write(self, image: Image, fitted: Fit, planes: NDArray[Any]) -> None:
        """Resize one image, and write its normalised pixels and the fill around them into (3, height, width)."""
        options, pixels = self._preprocessing, image.pixels
        cut_x, cut_y = fitted.cut_x, fitted.cut_y
        if image.full_size:
            cut_x, cut_y = cut_x * pixels.shape[1] // image.width, cut_y * pixels.shape[0] // image.height
        cropped = pixels[cut_y : pixels.shape[0] - cut_y, cut_x : pixels.shape[1] - cut_x]
        left, top = max(fitted.left, 0), max(fitted.top, 0)
        height, width = planes.shape[1:]
        right = min(fitted.left + fitted.width, width)
        bottom = min(fitted.top + fitted.height, height)
        window = (left - fitted.left, top - fitted.top, right - fitted.left, bottom - fitted.top)
        size = (fitted.height, fitted.width)
        floats = options.resizes_floats and planes.dtype.kind == "f"
        inside: NDArray[Any] = (
            resize_floats(cropped, size, window)
            if floats
            else resize_window(cropped, size, window, options.interpolation, options.antialias, self._whole)
        )
        if inside.shape[:2] != (height, width):
            planes[:, :top] = planes[:, bottom:] = self._border
            planes[:, top:bottom, :left] = planes[:, top:bottom, right:] = self._border
            planes = planes[:, top:bottom, left:right]
        for plane, channel, table in zip(planes, self._channels, self._tables, strict=True):
            if floats:
                plane[:] = (inside[:, :, channel] * options.scale - options.mean[channel]) / options.std[channel]
            else:
                cv2.LUT(cv2.extractChannel(inside, channel), table, plane)


def resize_window(
    pixels: NDArray[np.uint8],
    size: tuple[int, int],
    window: Window,
    interpolation: Interpolation,
    antialias: Antialias,
    whole: bool,
) -> NDArray[np.uint8]:
    """Resize an image, and return a part of the result.

    Args:
        pixels: (rows, columns, 3).
        size: (height, width) of the whole resized image.
        window: the part to return.
        interpolation: the filter.
        antialias: true for Pillow, whose filters cover all pixels of a downscaled image; false for OpenCV, whose
            filters do not; `fast` to halve long sides with OpenCV before its filter.
        whole: whether Pillow resizes all pixels, unless few are kept; otherwise a few bytes may differ by 1.
    """
    left, top, right, bottom = window
    height, width = size
    if antialias is True and pixels.shape[:2] != size:
        import PIL.Image

        image = PIL.Image.fromarray(pixels)
        kept = (bottom - top) * (right - left)
        if whole and height * width <= _MAX_CROPPED_RATIO * kept:
            return np.asarray(image.resize((width, height), PILLOW_FILTERS[interpolation]))[top:bottom, left:right]
        # Compute only the kept part. Pillow's filters still read the pixels around it.
        rows, columns = pixels.shape[:2]
        across, down = columns / width, rows / height
        box = (left * across, top * down, min(right * across, columns), min(bottom * down, rows))
        return np.asarray(image.resize((right - left, bottom - top), PILLOW_FILTERS[interpolation], box))
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
    """Resize an image as `resize_window`, but bilinearly without antialiasing and without rounding to bytes.

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
