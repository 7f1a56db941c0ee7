"""Convert images to the input tensor of a graph, and map boxes back to the images.

Images are resized with the filters of Pillow or OpenCV, which give different pixels.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.images.preprocessing import Interpolation, Preprocessing
from app.core.runtimes.onnxruntime.images.resampling import Window, resample
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image

_MAX_ASPECT = 4
"""Images are cropped to this aspect ratio before a resize of the shorter side, which bounds memory for thin strips."""

_PAD_ROUNDING: dict[str, Callable[[float], int]] = {"paddle": round, "mmlab": lambda side: int(side + 0.5)}

_OPENCV: dict[Interpolation, int] = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
    "area": cv2.INTER_AREA,
}


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """How one image is resized and placed in the input: ``input = image * scale + offset``, in pixels.

    The origin is the top left corner of the top left pixel.

    Attributes:
        image_width: width of the upright original image, as is its `image_height`.
        scale_x: input pixels per image pixel.
        offset_x: input coordinate of the image's left border; negative if it is cropped.
        cut_x: columns cropped on either side before resizing; `cut_y` are rows.
        width: width of the resized image, as is its `height`.
        left: input column of the resized image's first column; negative if it is cropped. `top` is the same for rows.
    """

    image_width: int
    image_height: int
    scale_x: float
    scale_y: float
    offset_x: float
    offset_y: float
    cut_x: int
    cut_y: int
    width: int
    height: int
    left: int
    top: int

    def boxes_to_image(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert (N, 4) xyxy boxes from input pixels to image pixels, without clipping."""
        offset = np.array([self.offset_x, self.offset_y] * 2, np.float32)
        scale = np.array([self.scale_x, self.scale_y] * 2, np.float32)
        return (boxes - offset) / scale

    def keypoints_to_image(self, keypoints: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert (N, K, 2 or more) keypoints x, y from input pixels to image pixels; other numbers stay."""
        converted = keypoints.copy()
        converted[..., 0] = (keypoints[..., 0] - self.offset_x) / self.scale_x
        converted[..., 1] = (keypoints[..., 1] - self.offset_y) / self.scale_y
        return converted

    def rotated_boxes_to_image(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert (N, 5) boxes cx, cy, w, h, r from input pixels to image pixels; r in radians, clockwise with y down.

        Different scales, as with `stretch`, map an oriented box to a parallelogram. The returned box has the same
        centre and area, and the length and direction of the longer axis. It is exact if the scales are equal.
        """
        cx, cy, width, height, angle = (np.asarray(column, np.float64) for column in boxes.T)
        cosine, sine = np.cos(angle), np.sin(angle)
        stretched_w = width * np.hypot(cosine / self.scale_x, sine / self.scale_y)
        stretched_h = height * np.hypot(sine / self.scale_x, cosine / self.scale_y)
        area = width * height / (self.scale_x * self.scale_y)
        wide = stretched_w >= stretched_h
        longer = np.maximum(np.where(wide, stretched_w, stretched_h), np.finfo(np.float32).tiny)
        along_w = np.arctan2(sine / self.scale_y, cosine / self.scale_x)
        along_h = np.arctan2(sine / self.scale_x, cosine / self.scale_y)
        columns = [
            (cx - self.offset_x) / self.scale_x,
            (cy - self.offset_y) / self.scale_y,
            np.where(wide, longer, area / longer),
            np.where(wide, area / longer, longer),
            np.where(wide, along_w, along_h),
        ]
        return np.stack(columns, axis=1).astype(np.float32)


@lru_cache(maxsize=256)
def fit(image_size: tuple[int, int], input_size: tuple[int, int], options: Preprocessing) -> Placement:
    """Compute how an image is resized and placed in the input; both sizes are (height, width) in pixels.

    The results are cached, because the images of most clients have few sizes.
    """
    image_height, image_width = image_size
    height, width = input_size
    resize = options.resize
    shorter_side = options.shorter_side if options.dynamic_size is None else min(input_size)
    cut_x = cut_y = left = top = scale = 0
    if resize in ("letterbox", "pad"):
        rule = getattr(options.dynamic_size, "scale", None)
        scale = rule(*image_size) if rule else min(width / image_width, height / image_height)
        # LetterBox of Ultralytics rounds; YOLOX and InsightFace, which pad, truncate.
        rounded = round if resize == "letterbox" else _PAD_ROUNDING.get(options.crop, int)
        new_width, new_height = max(1, rounded(image_width * scale)), max(1, rounded(image_height * scale))
        if resize == "letterbox":
            left, top = round((width - new_width) / 2 - 0.1), round((height - new_height) / 2 - 0.1)
    elif resize == "line":
        new_width, new_height = min(width, math.ceil(height * (image_width / image_height))), height
    elif resize == "crop":
        # Pillow's filters resize only the kept part of a thin strip; OpenCV would resize all of it.
        if not options.antialias:
            cut_x = max(0, (image_width - _MAX_ASPECT * image_height) // 2)
            cut_y = max(0, (image_height - _MAX_ASPECT * image_width) // 2)
        kept_width, kept_height = image_width - 2 * cut_x, image_height - 2 * cut_y
        shorter = min(kept_width, kept_height)
        new_width, new_height = kept_width * shorter_side // shorter, kept_height * shorter_side // shorter
        if options.crop == "paddle":
            ratio = shorter_side / shorter
            new_width, new_height = round(kept_width * ratio), round(kept_height * ratio)
    else:
        new_width, new_height = width * shorter_side // min(input_size), height * shorter_side // min(input_size)
    if resize in ("crop", "stretch"):
        left, top = -((new_width - width) // 2), -((new_height - height) // 2)
        if options.crop in ("torchvision", "mmlab"):
            left = round((width - new_width) / 2) if width < new_width else (width - new_width) // 2
            top = round((height - new_height) / 2) if height < new_height else (height - new_height) // 2
    scale_x, scale_y = new_width / (image_width - 2 * cut_x), new_height / (image_height - 2 * cut_y)
    if resize in ("letterbox", "pad") and options.box_scale == "common":
        scale_x = scale_y = scale
    return Placement(
        image_width=image_width,
        image_height=image_height,
        scale_x=scale_x,
        scale_y=scale_y,
        offset_x=left - cut_x * scale_x,
        offset_y=top - cut_y * scale_y,
        cut_x=cut_x,
        cut_y=cut_y,
        width=new_width,
        height=new_height,
        left=left,
        top=top,
    )


def downscale_factor(options: Preprocessing, width: int, height: int) -> float:
    """Return the factor by which an image of this size is downscaled to the fixed size of the input."""
    place = fit((height, width), (options.height, options.width), options)
    return min((width - 2 * place.cut_x) / place.width, (height - 2 * place.cut_y) / place.height)


class ImageBatcher:
    """Makes the input tensor of a graph. It keeps no state between calls, so any thread may call it.

    FP32 and FP16 inputs are normalised; UINT8 inputs contain the original pixel values. Their shape is
    [batch, channels, height, width], or [batch, height, width, channels] with `channels_last`. A `grey` input has one
    channel, the luma of Rec. 601, which is resized without rounding to bytes; others have three.
    """

    def __init__(
        self, preprocessing: Preprocessing, datatype: Datatype, *, channels_last: bool = False, grey: bool = False
    ) -> None:
        self._channels_last, self._grey = channels_last, grey
        self._preprocessing = preprocessing
        self._dtype = datatype.dtype
        self._channels = (0,) if grey else (2, 1, 0) if preprocessing.bgr else (0, 1, 2)
        # Crops of images that are too small are filled with black, as in torchvision and transformers.
        fill = preprocessing.fill if preprocessing.resize in ("letterbox", "pad", "line") else 0
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
        borders = [0 if fill is None else table[fill] for table in self._tables]
        self._border: NDArray[Any] = np.array(borders, self._tables[0].dtype).reshape(-1, 1, 1)
        self._resizes_floats = preprocessing.resizes_floats and datatype is not Datatype.UINT8

    def prepare(
        self, images: Sequence[Image], count: int, frame: tuple[int, int] | None = None
    ) -> tuple[NDArray[Any], list[Placement]]:
        """Return the input tensor, padded with zeros to `count` images, and the placement of each image.

        `frame` is the (height, width) of the tensor in pixels; by default from the preprocessing.
        """
        options = self._preprocessing
        frame = frame or (options.height, options.width)
        height, width = frame
        batch: NDArray[Any] = np.empty((count, len(self._channels), height, width), self._tables[0].dtype)
        if count > len(images):
            batch[len(images) :] = 0
        placements: list[Placement] = []
        for image, planes in zip(images, batch, strict=False):
            rows, columns = image.pixels.shape[:2]
            place = fit(image.full_size or (rows, columns), frame, options)
            placements.append(place)
            # An image that was decoded at a fraction of its size has fewer pixels to cut.
            cut_x, cut_y = place.cut_x * columns // place.image_width, place.cut_y * rows // place.image_height
            kept = image.pixels[cut_y : rows - cut_y, cut_x : columns - cut_x]
            left, right = max(place.left, 0), min(place.left + place.width, width)
            top, bottom = max(place.top, 0), min(place.top + place.height, height)
            window = (left - place.left, top - place.top, right - place.left, bottom - place.top)
            size = (place.height, place.width)
            resized: NDArray[Any]
            if self._grey:
                # Floats are not clipped by the filters that overshoot.
                resized = np.clip(self._resize(_luma(kept), size, window), 0, 255)
            else:
                resized = (resize_floats if self._resizes_floats else self._resize)(kept, size, window)
            inside = planes
            if resized.shape[:2] != frame:
                planes[:, :top] = planes[:, bottom:] = self._border
                planes[:, top:bottom, :left] = planes[:, top:bottom, right:] = self._border
                inside = planes[:, top:bottom, left:right]
            for plane, channel, table in zip(inside, self._channels, self._tables, strict=True):
                if self._grey and plane.dtype == np.uint8:
                    plane[:] = np.rint(resized)
                elif self._grey:
                    plane[:] = (resized * options.scale - options.mean[0]) / options.std[0]
                elif self._resizes_floats:
                    plane[:] = (resized[:, :, channel] * options.scale - options.mean[channel]) / options.std[channel]
                else:
                    cv2.LUT(cv2.extractChannel(resized, channel), table, plane)
        ordered = np.ascontiguousarray(batch.transpose(0, 2, 3, 1)) if self._channels_last else batch
        return ordered.astype(self._dtype, copy=False), placements

    def _resize(self, pixels: NDArray[Any], size: tuple[int, int], window: Window) -> NDArray[Any]:
        """Resize an image to a (height, width), and return the part in the window.

        Bytes (rows, columns, 3) stay bytes. Grey values (rows, columns) stay float32 in 0..255.
        """
        options = self._preprocessing
        if options.antialias:
            return resample(pixels, size, options.interpolation, window)
        left, top, right, bottom = window
        resized: NDArray[Any] = pixels
        if pixels.shape[:2] != size:
            resized = cv2.resize(pixels, size[::-1], interpolation=_OPENCV[options.interpolation])
        return np.asarray(resized[top:bottom, left:right])


def _luma(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the (rows, columns) luma of Rec. 601, 0..255, of RGB (rows, columns, 3)."""
    red, green, blue = cv2.split(pixels)
    # Floats of all channels of a large photo would need a gigabyte.
    both = cv2.addWeighted(red, 0.299, green, 0.587, 0, dtype=cv2.CV_32F)
    return np.asarray(cv2.addWeighted(both, 1, blue, 0.114, 0, dtype=cv2.CV_32F), np.float32)


def resize_floats(pixels: NDArray[np.uint8], size: tuple[int, int], window: Window) -> NDArray[np.float32]:
    """Resize an image bilinearly without antialiasing and without rounding to bytes.

    Args:
        pixels: (rows, columns, 3).
        size: (height, width) of the whole resized image.
        window: the part to return, in pixels of 0..255.
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
