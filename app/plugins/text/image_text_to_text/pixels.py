"""Convert an image to the vision encoder's input, with the same result as Hugging Face's PIL image processors.

The conversion is decided from preprocessor_config.json and the settings.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.files.hugging_face import (
    Preprocessor,
    Size,
    as_size,
    as_triple,
    processor_size,
    read_json,
)
from app.core.runtimes.onnxruntime.images.image_batch import ImageBatcher
from app.core.runtimes.onnxruntime.images.preprocessing import (
    BYTE,
    HALVES,
    ONES,
    ZEROS,
    Interpolation,
    Preprocessing,
    Resize,
    Triple,
    pillow_filter,
)
from app.core.runtimes.onnxruntime.images.resampling import resample
from app.core.settings.model import ModelError, PreprocessingSettings
from metadata.model import Origin
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image

TILED_FAMILIES = frozenset({"Idefics3", "SmolVLM"})
_LONGEST_EDGE, _TILE_EDGE = 1456, 364
_MAX_SIDE = 4096
_LANCZOS, _BILINEAR, _BICUBIC = 1, 2, 3
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
_SIGLIP = Preprocessor(size=Size(height=224, width=224), resample=_BICUBIC, image_mean=HALVES, image_std=HALVES)
_VIT = Preprocessor(size=224, resample=_BILINEAR, image_mean=HALVES, image_std=HALVES)

_FAMILIES: Mapping[str, Preprocessor] = {"CLIP": _CLIP, "Llava": _CLIP, "Siglip": _SIGLIP, "ViT": _VIT, "": _VIT}
"""The defaults of image processors that convert an image to one array."""
_DECLARABLE = ("interpolation", "fill", "scale", "mean", "std")


def family(config: Preprocessor) -> str:
    """Return the processor's class without its framework, such as ``CLIP`` or ``Idefics3``."""
    return _FRAMEWORK.sub("", config.class_name)


def read_processor_configuration(folder: Path) -> tuple[Preprocessor, Path] | None:
    """Read the configuration of the image processor, and return it with its file; None if there is none.

    Raises:
        ModelError: if a file cannot be parsed.
    """
    path, nested_path = folder / "preprocessor_config.json", folder / "processor_config.json"
    if config := read_json(Preprocessor, path):
        return config, path
    nested = read_json(_Nested, nested_path)
    return (nested.image_processor, nested_path) if nested and nested.image_processor else None


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
    resized, pads_to_square = config.resized, bool(config.do_pad) and family(config) == "Llava"
    for declared in (resized, as_size(config.crop_size) if config.do_center_crop else resized):
        if declared.sides is None and (declared.shortest_edge is None or declared.longest_edge is not None):
            raise ModelError(f"{path} gives a size that is not supported: {declared}")
    if resized.sides is None and not config.do_center_crop and not pads_to_square:
        raise ModelError(
            f"{path} gives no fixed size: size is {resized} and do_center_crop is not true; expected a size with "
            f"height and width, or do_center_crop"
        )
    size = processor_size(config) or (0, 0)
    shorter_side = min(resized.sides) if resized.sides else resized.shortest_edge or 0
    if resized.sides not in (None, tuple(side * shorter_side // min(size) for side in size)):
        raise ModelError(f"{path} resizes to {resized} and cuts out {size} of other proportions, not supported yet")
    mean, std = _statistics(config, path)
    return msgspec.structs.replace(
        _recipe(size, "stretch" if resized.sides else "crop", shorter_side),
        interpolation=_filter(config.resample, path),
        fill=tuple(min(max(int(value * 255), 0), 255) for value in mean),
        scale=1.0 if config.do_rescale is False else config.rescale_factor or BYTE,
        mean=ZEROS if config.do_normalize is False else mean,
        std=std,
        pads_to_square=pads_to_square,
    )


def _statistics(config: Preprocessor, path: Path) -> tuple[Triple, Triple]:
    """Return the means of R, G and B, and the divisors after they are subtracted; by default 0.5."""
    mean = as_triple(config.image_mean) or HALVES
    std = ONES if config.do_normalize is False else as_triple(config.image_std) or HALVES
    if not all(map(math.isfinite, (*mean, *std))) or 0 in std:
        raise ModelError(f"{path} gives the mean {mean} and the standard deviation {std}, which make no finite numbers")
    return mean, std


def _filter(number: int | str | None, path: Path) -> Interpolation:
    """Return the interpolation for Pillow's number of a filter."""
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
        antialias=recipe.antialias if settings.antialias is None else bool(settings.antialias),
        bgr=settings.channel_order == "BGR",
        pads_to_square=recipe.pads_to_square and settings.resize is None,
        **{name: getattr(settings, name) for name in names},
    )


class Tiles(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The vision encoder's input for one image.

    `pixel_values` are float32, (1, 3, height, width), or (1, tiles, 3, height, width) for encoders with tiles. An image
    without tiles has 0 rows and columns.
    """

    pixel_values: NDArray[np.float32]
    rows: int = 0
    columns: int = 0

    @property
    def count(self) -> int:
        """Return the number of tiles, including the tile of the whole image."""
        return self.rows * self.columns + 1


def single_image_processor(recipe: Preprocessing) -> Callable[[Image], Tiles]:
    """Return a function that converts an image to one array for CLIP, SigLIP and ViT encoders."""
    batcher = ImageBatcher(recipe, Datatype.FP32)
    return lambda image: Tiles(pixel_values=batcher.prepare([image], 1)[0])


class TiledImageProcessor:
    """Resizes an image, cuts it into square tiles, and appends the whole image as the last tile: Idefics3, SmolVLM.

    Raises:
        ModelError: if the configuration is missing, or is not that of a processor with tiles.
    """

    def __init__(self, configuration: tuple[Preprocessor, Path] | None, folder: Path) -> None:
        if configuration is None:
            raise ModelError(f"{folder} has no usable image processor: preprocessor_config.json is missing")
        config, path = configuration
        if family(config) not in TILED_FAMILIES:
            raise ModelError(
                f"{path} has no usable image processor: {config.class_name or None} does not cut images into tiles"
            )
        self._size = None if config.do_resize is False else _longest_edge(config.size, _LONGEST_EDGE, path)
        self._edge = _longest_edge(config.max_image_size, _TILE_EDGE, path)
        self._splits = config.do_image_splitting is not False
        self._filter: Interpolation = _filter(_LANCZOS if config.resample is None else config.resample, path)
        self._values = _values(config, path)

    def __call__(self, image: Image) -> Tiles:
        whole: NDArray[np.uint8] = image.pixels
        if self._size is not None:
            whole = self._resize(whole, _fitted(_size(whole), self._size))
        rows = columns = 0
        tiles: list[NDArray[np.uint8]] = []
        edge = self._edge
        if self._splits:
            whole = self._resize(whole, _in_whole_tiles(_size(whole), edge))
            if max(whole.shape) > edge:
                rows, columns = whole.shape[0] // edge, whole.shape[1] // edge
                pixels = whole.reshape(rows, edge, columns, edge, 3).swapaxes(1, 2)
                tiles = list(pixels.reshape(-1, edge, edge, 3))
        tiles.append(self._resize(whole, (edge, edge)))
        values = self._values[np.stack(tiles), np.arange(3)]
        return Tiles(
            pixel_values=np.ascontiguousarray(values.transpose(0, 3, 1, 2)[np.newaxis]), rows=rows, columns=columns
        )

    def _resize(self, pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
        """Resize to a (width, height)."""
        width, height = size
        return resample(pixels, (height, width), self._filter)


def _size(pixels: NDArray[np.uint8]) -> tuple[int, int]:
    """Return the (width, height)."""
    return pixels.shape[1], pixels.shape[0]


def _values(config: Preprocessor, path: Path) -> NDArray[np.float32]:
    """Return the input of the network for each of 256 values of R, G and B, (256, 3)."""
    factor = 1.0 if config.do_rescale is False else config.rescale_factor or 1 / 255
    values = np.repeat((np.arange(256) * factor).astype(np.float32)[:, np.newaxis], 3, axis=1)
    if config.do_normalize is False:
        return values
    mean, std = _statistics(config, path)
    return (values - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)


def _longest_edge(size: int | Size | None, default: int, path: Path) -> int:
    edge = default if size is None else as_size(size).longest_edge
    if edge is None or edge > _MAX_SIDE:
        raise ModelError(
            f"{path} gives a size that is not supported: {size}; expected a longest_edge up to {_MAX_SIDE}"
        )
    return edge


def _fitted(size: tuple[int, int], longest_edge: int) -> tuple[int, int]:
    """Return the (width, height) whose longer side is `longest_edge`; the shorter one is even."""
    width, height = _with_longer_side(size, longest_edge)
    if size[0] >= size[1]:
        height += height % 2
    else:
        width += width % 2
    return max(width, 1), max(height, 1)


def _in_whole_tiles(size: tuple[int, int], edge: int) -> tuple[int, int]:
    """Return the (width, height) in multiples of `edge`, the longer side rounded up first."""
    width, height = _with_longer_side(size, math.ceil(max(size) / edge) * edge)
    return math.ceil(width / edge) * edge, math.ceil(height / edge) * edge


def _with_longer_side(size: tuple[int, int], length: int) -> tuple[int, int]:
    width, height = size
    aspect = width / height
    return (length, int(length / aspect)) if width >= height else (int(length * aspect), length)
