"""The preprocessing of a model's images, and rules for the input size of graphs that accept any size."""

from typing import Literal, Protocol

import msgspec

from metadata.model import Origin

Resize = Literal["letterbox", "pad", "line", "stretch", "crop"]
BoxScale = Literal["axes", "common"]
Crop = Literal["torchvision", "transformers", "paddle", "mmlab"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "area"]

PILLOW_FILTERS: dict[Interpolation, int] = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "area": 4}
"""Numbers of `PIL.Image.Resampling`, which model files use too. Pillow takes 7 MB, so it is imported when needed."""
_FILTER_NAMES: dict[str, Interpolation] = {key: name for name, i in PILLOW_FILTERS.items() for key in (name, str(i))}
_FILTER_NAMES["box"] = "area"

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
ZERO_FILL = -1
"""The `fill` of sources that pad with 0 after normalisation."""
MIN_SIDE = 32
"""Pixels. Networks downsample by this factor, so a thinner input would have no features."""


def pillow_filter(value: object) -> Interpolation | None:
    """Return the interpolation for Pillow's number or name of a filter; None for other values."""
    return _FILTER_NAMES.get(str(value).lower())


def as_triple(value: Triple | float | None) -> Triple | None:
    """Return the values for R, G and B; a number applies to each."""
    return (value, value, value) if isinstance(value, (int, float)) else value


class DynamicSize(Protocol):
    """A rule for the input size of each image, with a text for users.

    It may have the attribute `resize`, the mode for which it holds instead of "stretch", and a `height` or `width` that
    all images have, in pixels. A rule for "pad" has a method `scale`, which takes the size of the image, too.
    """

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the (height, width) of the input for an image's, pixels."""
        ...


class OwnSize(msgspec.Struct, frozen=True, kw_only=True):
    """Keep the size of the image, for graphs that resize it by themselves, as torchvision's detectors do.

    A `height` or `width` other than -1 holds for all images, in pixels.
    """

    height: int = -1
    width: int = -1

    def __str__(self) -> str:
        sides = [f"{name} {side}" for name, side in (("height", self.height), ("width", self.width)) if side != -1]
        return ", ".join([*sides, "otherwise that of the image"] if sides else ["that of the image"])

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        return height if self.height == -1 else self.height, width if self.width == -1 else self.width


class Preprocessing(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """``input = (pixel * scale - mean) / std`` for the resized image.

    Attributes:
        height: height of the input, pixels, as is its `width`.
        resize: `letterbox` as in Ultralytics' LetterBox; `pad` with the padding only at the right and bottom, as in
            YOLOX; `line` as PaddleOCR resizes lines of text, to the height of the input, and to its width at most,
            which squeezes longer lines; `crop` as in torchvision's Resize and CenterCrop; `stretch` like `crop`, but
            without the aspect ratio.
        shorter_side: length of the shorter side before the centre crop of `crop` and `stretch`, pixels.
        antialias: true for the filters of Pillow, which cover all pixels of a downscaled image; false for those of
            OpenCV, which do not.
        dynamic_size: rule for the size of each image, instead of `height` and `width`; None for a fixed size.
        fill: grey value of the padding, 0..255; None for 0 after normalisation.
        scale: factor for pixels in 0..255.
        mean: means of R, G, B; `std` are their standard deviations.
        bgr: whether the input's first channel is blue.
        crop: the library whose rounding is used: `torchvision` truncates sides, and rounds offsets half to even;
            `transformers` also rounds these down; `paddle` rounds sides, also of `pad`; `mmlab` only for `pad`.
        box_scale: the scale that maps boxes back: `axes` for one for each axis; for `letterbox` and `pad`, `common` for
            the one before the sides were rounded, as in Ultralytics and YOLOX.
        resizes_floats: whether resized pixels are not rounded to bytes, as in RF-DETR; only for OpenCV's bilinear
            filter.
    """

    height: int
    width: int
    resize: Resize
    shorter_side: int
    interpolation: Interpolation = "bilinear"
    antialias: bool = True
    dynamic_size: DynamicSize | None = None
    fill: int | None = LETTERBOX_FILL
    scale: float = BYTE
    mean: Triple = ZEROS
    std: Triple = ONES
    bgr: bool = False
    crop: Crop = "torchvision"
    box_scale: BoxScale = "axes"
    resizes_floats: bool = False


class PartialPreprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """What one source declares: the settings, a file, or the layout; None or 0 for undeclared fields.

    The fields have the meaning of `Preprocessing`'s, unless they are described here.

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
    antialias: bool | None = None
    dynamic_size: DynamicSize | None = None
    shorter_side: int = 0
    crop_fraction: float | None = None
    fill: int | None = None
    scale: float | None = None
    mean: Triple | None = None
    std: Triple | None = None
    channel_order: Literal["RGB", "BGR"] | None = None
    crop: Crop | None = None
    box_scale: BoxScale | None = None
    resizes_floats: bool = False


NO_PREPROCESSING = PartialPreprocessing(origin=Origin.GUESSED)
STRETCHED = PartialPreprocessing(resize="stretch", interpolation="bilinear", antialias=True, channel_order="RGB")
"""The preprocessing that torchvision and the DETR models of transformers share."""
