"""The preprocessing of a model's images."""

from typing import Literal

import msgspec

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.images.dynamic_input import DynamicSize
from app.runtimes.onnxruntime.images.placement import BoxScale, Resize
from app.runtimes.onnxruntime.images.resampling import Antialias, Interpolation

Triple = tuple[float, float, float]
"""One value each for R, G and B."""

BYTE = 1 / 255
"""The scale from bytes to 0..1."""
ZEROS: Triple = (0.0, 0.0, 0.0)
HALVES: Triple = (0.5, 0.5, 0.5)
ONES: Triple = (1.0, 1.0, 1.0)
IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
LETTERBOX_FILL = 114
"""The grey of Ultralytics' LetterBox."""


class Preprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """``input = (pixel * scale - mean) / std`` for the resized image.

    Attributes:
        height: height of the input, pixels.
        width: width of the input, pixels.
        resize: resize mode (`app.runtimes.onnxruntime.images.placement.fit`).
        shorter_side: length of the shorter side before the centre crop of `crop` and `stretch`, pixels.
        interpolation: filter for resizing.
        antialias: whether the filter antialiases (`app.runtimes.onnxruntime.images.resampling.resize_window`).
        dynamic_size: rule for the size of each image, instead of `height` and `width`; None for a fixed size.
        fill: grey value of the padding, 0..255; None for 0 after normalisation.
        scale: factor for pixels in 0..255.
        mean: means of R, G, B.
        std: standard deviations of R, G, B.
        bgr: whether the input's first channel is blue.
        crop_half_even: whether a centre crop rounds half a pixel to even, as in torchvision, or down, as in
            transformers.
        box_scale: scale that maps boxes back (`app.runtimes.onnxruntime.images.placement.fit`).
        resizes_floats: whether resized pixels are not rounded to bytes, as in RF-DETR; only for OpenCV's bilinear
            filter.
    """

    height: int
    width: int
    resize: Resize
    shorter_side: int
    interpolation: Interpolation = "bilinear"
    antialias: Antialias = True
    dynamic_size: DynamicSize | None = None
    fill: int | None = LETTERBOX_FILL
    scale: float = BYTE
    mean: Triple = ZEROS
    std: Triple = ONES
    bgr: bool = False
    crop_half_even: bool = True
    box_scale: BoxScale = "axes"
    resizes_floats: bool = False


class PartialPreprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """What one source declares: the settings, a file, or the layout; None or 0 for undeclared fields.

    The fields are those of `Preprocessing`, unless they are described here.

    Attributes:
        origin: the source; for a layout CONVENTION if one exporter uses it, GUESSED if its models are known to differ.
        size: (height, width) of the input, pixels.
        crop_fraction: fraction of the resized image that is kept; an alternative to `shorter_side`.
        channel_order: order of the input's channels.
    """

    origin: Origin = Origin.CONVENTION
    size: tuple[int, int] | None = None
    resize: Resize | None = None
    interpolation: Interpolation | None = None
    antialias: Antialias | None = None
    dynamic_size: DynamicSize | None = None
    shorter_side: int = 0
    crop_fraction: float | None = None
    fill: int | None = None
    scale: float | None = None
    mean: Triple | None = None
    std: Triple | None = None
    channel_order: Literal["RGB", "BGR"] | None = None
    crop_half_even: bool = True
    box_scale: BoxScale | None = None
    resizes_floats: bool = False


NO_PREPROCESSING = PartialPreprocessing(origin=Origin.GUESSED)
STRETCHED = PartialPreprocessing(resize="stretch", interpolation="bilinear", antialias=True, channel_order="RGB")
"""The preprocessing that torchvision and the DETR models of transformers share."""
