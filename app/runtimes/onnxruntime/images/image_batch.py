"""Convert images to the input tensor of a graph."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.images.placement import Fit, Placement, fit
from app.runtimes.onnxruntime.images.preprocessing import Preprocessing
from app.runtimes.onnxruntime.images.resampling import resize_floats, resize_window
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image


class ImageBatcher:
    """Makes the input tensor of a graph. It keeps no state between calls, so any thread may call it.

    Args:
        preprocessing: preprocessing of each image.
        datatype: FP32 and FP16 inputs are normalised, UINT8 inputs contain the original pixel values.
        channels_last: whether the shape is [batch, height, width, 3] instead of [batch, 3, height, width].
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
        self._fills = [0 if fill is None else table[fill] for table in self._tables]

    def downscale(self, width: int, height: int) -> float:
        """Return the factor by which an image of this size, in pixels, is downscaled."""
        options = self._preprocessing
        fitted = self._fit((height, width), (options.height, options.width), shorter_side=options.shorter_side)
        return min((width - 2 * fitted.cut_x) / fitted.width, (height - 2 * fitted.cut_y) / fitted.height)

    def prepare(
        self, images: Sequence[Image], count: int, frame: tuple[int, int] | None = None
    ) -> tuple[NDArray[Any], list[Placement]]:
        """Return the input tensor, padded with zeros to `count` images, and the placement of each image.

        Args:
            images: at most `count` images.
            count: batch size.
            frame: (height, width) of the tensor, pixels; by default that of the preprocessing.
        """
        options = self._preprocessing
        height, width = frame or (options.height, options.width)
        shape = (count, 3, height, width)
        batch: NDArray[Any] = np.empty(shape, self._tables[0].dtype)
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
            else resize_window(cropped, size, window, options.interpolation, options.antialias)
        )
        for plane, channel, table, fill in zip(planes, self._channels, self._tables, self._fills, strict=True):
            plane[:top] = fill
            plane[bottom:] = fill
            plane[top:bottom, :left] = fill
            plane[top:bottom, right:] = fill
            part = plane[top:bottom, left:right]
            if floats:
                part[:] = (inside[:, :, channel] * options.scale - options.mean[channel]) / options.std[channel]
            else:
                cv2.LUT(cv2.extractChannel(inside, channel), table, part)
