"""Decide the preprocessing of an image from preprocessor_config.json and the settings."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.files.hugging_face import (
    Preprocessor,
    Size,
    as_size,
    as_triple,
    processor_size,
    read_json,
)
from app.runtimes.onnxruntime.image_text_to_text.configuration import read_optional_json
from app.runtimes.onnxruntime.images.placement import Resize
from app.runtimes.onnxruntime.images.preprocessing import (
    BYTE,
    HALVES,
    ONES,
    ZEROS,
    Interpolation,
    Preprocessing,
    Triple,
    pillow_filter,
)
from app.settings.model import ModelError, PreprocessingSettings

_BILINEAR, _BICUBIC = 2, 3
_FRAMEWORK = re.compile(r"(FeatureExtractor)?(ImageProcessor)?(Pil)?(Fast)?$")

_CLIP_MEAN: Triple = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD: Triple = (0.26862954, 0.26130258, 0.27577711)


class _Nested(msgspec.Struct, frozen=True):
    image_processor: Preprocessor | None = None


_CLIP = Preprocessor(
    size=Size(shortest_edge=224),
    resample=_BICUBIC,
    do_center_crop=True,
    crop_size=224,
    image_mean=_CLIP_MEAN,
    image_std=_CLIP_STD,
)
_SIGLIP = Preprocessor(size=224, resample=_BICUBIC, image_mean=HALVES, image_std=HALVES)
_VIT = Preprocessor(size=224, resample=_BILINEAR, image_mean=HALVES, image_std=HALVES)

_FAMILIES: Mapping[str, Preprocessor] = {
    "CLIP": _CLIP,
    "Llava": _CLIP,
    "Siglip": _SIGLIP,
    "ViT": _VIT,
    "": _VIT,
}
"""The defaults of image processors that convert an image to one array."""
_DECLARABLE = ("interpolation", "antialias", "fill", "scale", "mean", "std")


def family(config: Preprocessor) -> str:
    """Return the processor's class without its framework, such as ``CLIP`` or ``Idefics3``."""
    return _FRAMEWORK.sub("", config.class_name)


def read_processor_configuration(folder: Path) -> tuple[Preprocessor, Path] | None:
    """Read the configuration of the image processor, and return it with its file; None if there is none.

    Raises:
        ModelError: if a file cannot be parsed.
    """
    path = folder / "preprocessor_config.json"
    if path.is_file():
        return read_json(path, Preprocessor), path
    path = folder / "processor_config.json"
    nested = read_optional_json(path, _Nested)
    return (nested.image_processor, path) if nested and nested.image_processor else None


def decide_recipe(
    configuration: tuple[Preprocessor, Path] | None, settings: PreprocessingSettings, folder: Path
) -> tuple[Preprocessing, Origin]:
    """Decide the preprocessing. The settings take precedence over the model's files.

    Raises:
        ModelError: if the files need an unsupported feature, or no size is declared.
    """
    if configuration is not None:
        recipe, origin = _from_file(*configuration), Origin.PREPROCESSOR
    elif settings.size is not None:
        recipe, origin = _recipe(settings.size, "stretch", min(settings.size)), Origin.DECLARED
    else:
        raise ModelError(f"{folder / 'preprocessor_config.json'} is missing, and no preprocessing.size is declared")
    return _declared(recipe, settings), origin


def _recipe(size: tuple[int, int], resize: Resize, shorter_side: int) -> Preprocessing:
    """Return a preprocessing whose pixels equal those of Hugging Face's PIL image processors."""
    return Preprocessing(
        height=size[0],
        width=size[1],
        resize=resize,
        shorter_side=shorter_side,
        interpolation="bicubic",
        fill=0,
        crop_half_even=False,
        resizes_whole=True,
    )


def _from_file(config: Preprocessor, path: Path) -> Preprocessing:
    defaults = _FAMILIES.get(family(config))
    if defaults is None:
        known = ", ".join(f"{name}ImageProcessor" for name in (*_FAMILIES, "Idefics3") if name)
        raise ModelError(f"{path} needs {config.class_name}, which is not supported yet; supported are {known}")
    if config.do_resize is False:
        raise ModelError(f"{path} disables resizing of images, which is not supported")
    names = [name for name in config.__struct_fields__ if getattr(config, name) is None]
    config = msgspec.structs.replace(config, **{name: getattr(defaults, name) for name in names})
    resized = as_size(config.size)
    if isinstance(config.size, int) and config.do_center_crop:
        resized = Size(shortest_edge=config.size)
    for declared in (resized, as_size(config.crop_size) if config.do_center_crop else resized):
        if declared.sides is None and (declared.shortest_edge is None or declared.longest_edge is not None):
            raise ModelError(f"{path} gives a size that is not supported: {declared}")
    if resized.sides is None and not config.do_center_crop:
        raise ModelError(f"{path} gives no fixed size: size is {resized} and do_center_crop is not true")
    size = processor_size(config) or (0, 0)
    shorter_side = min(resized.sides) if resized.sides else resized.shortest_edge or 0
    resize: Resize = "stretch" if resized.sides else "crop"
    if config.do_pad and family(config) == "Llava":
        resize = "letterbox"
    elif resized.sides not in (None, tuple(side * shorter_side // min(size) for side in size)):
        raise ModelError(f"{path} resizes to {resized} and cuts out {size} of other proportions, not supported yet")
    mean, std = as_triple(config.image_mean) or ZEROS, as_triple(config.image_std) or ONES
    normalised = config.do_normalize is not False
    return msgspec.structs.replace(
        _recipe(size, resize, shorter_side),
        interpolation=read_filter(config.resample, path),
        fill=tuple(int(value * 255) for value in mean),
        scale=1.0 if config.do_rescale is False else config.rescale_factor or BYTE,
        mean=mean if normalised else ZEROS,
        std=std if normalised else ONES,
    )


def read_filter(number: int | str | None, path: Path) -> Interpolation:
    """Return the interpolation for Pillow's number of a filter.

    Raises:
        ModelError: for an unknown number.
    """
    interpolation = pillow_filter(number)
    if interpolation is None:
        raise ModelError(f"{path} gives a filter that is not supported: {number}")
    return interpolation


def _declared(recipe: Preprocessing, settings: PreprocessingSettings) -> Preprocessing:
    """Replace what the settings declare."""
    size = settings.size or (recipe.height, recipe.width)
    resize, shorter_side = settings.resize or recipe.resize, recipe.shorter_side
    if settings.size is not None or settings.resize is not None:
        shorter_side = max(size) if resize == "crop" else min(size)
    if settings.crop_fraction is not None:
        shorter_side = math.floor(min(size) / settings.crop_fraction)
    names = [name for name in _DECLARABLE if getattr(settings, name) is not None]
    return msgspec.structs.replace(
        recipe,
        height=size[0],
        width=size[1],
        resize=resize,
        shorter_side=shorter_side,
        bgr=settings.channel_order == "BGR",
        **{name: getattr(settings, name) for name in names},
    )
