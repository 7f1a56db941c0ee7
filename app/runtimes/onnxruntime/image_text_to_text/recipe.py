"""Decide the preprocessing of an image from preprocessor_config.json and the settings."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.image_text_to_text.configuration import read_json, read_optional_json
from app.settings.model import ModelError, PreprocessingSettings

_BILINEAR, _BICUBIC = 2, 3
_FRAMEWORK = re.compile(r"(FeatureExtractor)?(ImageProcessor)?(Pil)?(Fast)?$")

Triple = tuple[float, float, float]
Sides = Mapping[str, int | None] | int | None

_CLIP_MEAN: Triple = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD: Triple = (0.26862954, 0.26130258, 0.27577711)
_HALF: Triple = (0.5, 0.5, 0.5)


class ProcessorConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """preprocessor_config.json, or the ``image_processor`` of processor_config.json; its class defines the defaults."""

    image_processor_type: str | None = None
    feature_extractor_type: str | None = None
    do_resize: bool | None = None
    size: Sides = None
    resample: int | None = None
    do_center_crop: bool | None = None
    crop_size: Sides = None
    do_rescale: bool | None = None
    rescale_factor: float | None = None
    do_normalize: bool | None = None
    image_mean: Triple | float | None = None
    image_std: Triple | float | None = None
    do_pad: bool | None = None
    do_image_splitting: bool | None = None
    max_image_size: Sides = None

    @property
    def family(self) -> str:
        """The processor's class without its framework, such as ``CLIP`` or ``Idefics3``."""
        return _FRAMEWORK.sub("", self.class_name or "")

    @property
    def class_name(self) -> str | None:
        """Return the processor's class."""
        return self.image_processor_type or self.feature_extractor_type


class _Nested(msgspec.Struct, frozen=True):
    image_processor: ProcessorConfiguration | None = None


class PixelRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The conversion of an image to the vision encoder's input.

    Attributes:
        size: (height, width) of the result.
        resized: (height, width) before the centre is cut out, or the length of the shorter side; larger than `size` is
            cut, smaller is padded with zeros.
        letterbox: whether to fit the whole image into `size` with its aspect ratio instead.
        fill: R, G, B in 0..255 of the padding around a letterboxed image.
        resample: Pillow's number of the filter.
        scale: factor for pixels in 0..255, applied first.
        mean: subtracted next, for R, G, B.
        std: divisor applied last, for R, G, B.
        channel_order: of the result.
    """

    size: tuple[int, int]
    resized: tuple[int, int] | int
    letterbox: bool = False
    fill: tuple[int, int, int] = (0, 0, 0)
    resample: int = _BICUBIC
    scale: float = 1 / 255
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)
    channel_order: Literal["RGB", "BGR"] = "RGB"

    @property
    def fit(self) -> str:
        """Return the resize mode in words."""
        if self.letterbox:
            return "letterbox"
        return "stretch" if self.resized == self.size else f"resize to {self.resized} and cut out the centre"


_CLIP = ProcessorConfiguration(
    size={"shortest_edge": 224},
    resample=_BICUBIC,
    do_center_crop=True,
    crop_size=224,
    image_mean=_CLIP_MEAN,
    image_std=_CLIP_STD,
)
_SIGLIP = ProcessorConfiguration(size=224, resample=_BICUBIC, image_mean=_HALF, image_std=_HALF)
_VIT = ProcessorConfiguration(size=224, resample=_BILINEAR, image_mean=_HALF, image_std=_HALF)

_FAMILIES: Mapping[str, ProcessorConfiguration] = {
    "CLIP": _CLIP,
    "Llava": _CLIP,
    "Siglip": _SIGLIP,
    "ViT": _VIT,
    "": _VIT,
}
"""The defaults of image processors that convert an image to one array."""


def read_processor_configuration(folder: Path) -> tuple[ProcessorConfiguration, Path] | None:
    """Read the configuration of the image processor, and return it with its file; None if there is none.

    Raises:
        ModelError: if a file cannot be parsed.
    """
    path = folder / "preprocessor_config.json"
    if path.is_file():
        return read_json(path, ProcessorConfiguration), path
    path = folder / "processor_config.json"
    nested = read_optional_json(path, _Nested)
    return (nested.image_processor, path) if nested and nested.image_processor else None


def decide_recipe(
    configuration: tuple[ProcessorConfiguration, Path] | None, settings: PreprocessingSettings, folder: Path
) -> tuple[PixelRecipe, Origin]:
    """Decide the preprocessing. The settings take precedence over the model's files.

    Raises:
        ModelError: if the files need an unsupported feature, or no size is declared.
    """
    if configuration is not None:
        recipe, origin = _from_file(*configuration), Origin.PREPROCESSOR
    elif settings.size is not None:
        recipe, origin = PixelRecipe(size=settings.size, resized=settings.size), Origin.DECLARED
    else:
        raise ModelError(f"{folder / 'preprocessor_config.json'} is missing, and no preprocessing.size is declared")
    return _declared(recipe, settings), origin


def _from_file(config: ProcessorConfiguration, path: Path) -> PixelRecipe:
    defaults = _FAMILIES.get(config.family)
    if defaults is None:
        known = ", ".join(f"{name}ImageProcessor" for name in (*_FAMILIES, "Idefics3") if name)
        raise ModelError(f"{path} needs {config.class_name}, which is not supported yet; supported are {known}")
    if config.do_resize is False:
        raise ModelError(f"{path} disables resizing of images, which is not supported")
    names = [name for name in config.__struct_fields__ if getattr(config, name) is None]
    config = msgspec.structs.replace(config, **{name: getattr(defaults, name) for name in names})
    resized = _sides(config.size, path)
    size = _sides(config.crop_size, path) if config.do_center_crop else resized
    if isinstance(resized, int) and not config.do_center_crop and not isinstance(config.size, int):
        raise ModelError(f"{path} gives no fixed size: size is {config.size} and do_center_crop is not true")
    size = (size, size) if isinstance(size, int) else size
    if not config.do_center_crop:
        resized = size
    mean = _triple(config.image_mean)
    normalised = config.do_normalize is not False
    return PixelRecipe(
        size=size,
        resized=resized,
        letterbox=bool(config.do_pad) and config.family == "Llava",
        fill=(int(mean[0] * 255), int(mean[1] * 255), int(mean[2] * 255)),
        resample=_BILINEAR if config.resample is None else config.resample,
        scale=1.0 if config.do_rescale is False else config.rescale_factor or 1 / 255,
        mean=mean if normalised else (0.0, 0.0, 0.0),
        std=_triple(config.image_std) if normalised else (1.0, 1.0, 1.0),
    )


def _sides(size: Sides, path: Path) -> tuple[int, int] | int:
    if isinstance(size, Mapping):
        height, width = size.get("height") or 0, size.get("width") or 0
        if height > 0 and width > 0:
            return height, width
        if size.get("longest_edge") is None:
            size = size.get("shortest_edge")
    if isinstance(size, int) and size > 0:
        return size
    raise ModelError(f"{path} gives a size that is not supported: {size}")


def _triple(value: Triple | float | None) -> Triple:
    if isinstance(value, tuple):
        return value
    return (0.0, 0.0, 0.0) if value is None else (value, value, value)


def _declared(recipe: PixelRecipe, settings: PreprocessingSettings) -> PixelRecipe:
    size = settings.size or recipe.size
    resize = settings.resize
    if resize is None:
        resize = "letterbox" if recipe.letterbox else "stretch" if recipe.resized == recipe.size else "crop"
    resized = recipe.resized
    if settings.size is not None or settings.resize is not None:
        resized = max(size) if resize == "crop" else size
    return msgspec.structs.replace(
        recipe,
        size=size,
        resized=resized,
        letterbox=resize == "letterbox",
        fill=recipe.fill if settings.fill is None else (settings.fill,) * 3,
        scale=recipe.scale if settings.scale is None else settings.scale,
        mean=settings.mean or recipe.mean,
        std=settings.std or recipe.std,
        channel_order=settings.channel_order or recipe.channel_order,
    )
