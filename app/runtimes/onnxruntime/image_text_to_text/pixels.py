"""Convert an image to the vision encoder's input, with the same result as Hugging Face's PIL image processors."""

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.files.hugging_face import Preprocessor, Size
from app.runtimes.onnxruntime.image_text_to_text.recipe import family, read_filter
from app.runtimes.onnxruntime.images.image_batch import ImageBatcher
from app.runtimes.onnxruntime.images.preprocessing import PILLOW_FILTERS, Preprocessing
from app.settings.model import ModelError
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image

TILED_FAMILIES = frozenset({"Idefics3", "SmolVLM"})
_LONGEST_EDGE, _TILE_EDGE = 1456, 364
_LANCZOS = 1
_MAX_SIDE = 4096


class Tiles(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The vision encoder's input for one image.

    Attributes:
        pixel_values: float32, (1, 3, height, width), or (1, tiles, 3, height, width) for encoders with tiles.
        rows: rows of tiles; 0 for an image without tiles.
        columns: columns of tiles; 0 for an image without tiles.
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
                f"{path} has no usable image processor: {config.class_name} does not cut images into tiles"
            )
        self._size = None if config.do_resize is False else _longest_edge(config.size, _LONGEST_EDGE, path)
        self._edge = _longest_edge(config.max_image_size, _TILE_EDGE, path)
        self._splits = config.do_image_splitting is not False
        self._resample = PILLOW_FILTERS[read_filter(_LANCZOS if config.resample is None else config.resample, path)]
        self._values = _values(config)

    def __call__(self, image: Image) -> Tiles:
        import PIL.Image

        whole = PIL.Image.fromarray(image.pixels)
        if self._size is not None:
            whole = whole.resize(_fitted(whole.size, self._size), self._resample)
        rows = columns = 0
        tiles: list[NDArray[np.uint8]] = []
        edge = self._edge
        if self._splits:
            whole = whole.resize(_in_whole_tiles(whole.size, edge), self._resample)
            if max(whole.size) > edge:
                rows, columns = whole.height // edge, whole.width // edge
                pixels = np.asarray(whole).reshape(rows, edge, columns, edge, 3).swapaxes(1, 2)
                tiles = list(pixels.reshape(-1, edge, edge, 3))
        tiles.append(np.asarray(whole.resize((edge, edge), self._resample)))
        values = self._values[np.stack(tiles), np.arange(3)]
        return Tiles(
            pixel_values=np.ascontiguousarray(values.transpose(0, 3, 1, 2)[np.newaxis]), rows=rows, columns=columns
        )


def _values(config: Preprocessor) -> NDArray[np.float32]:
    """Return the input of the network for each of 256 values of R, G and B, (256, 3)."""
    factor = 1.0 if config.do_rescale is False else config.rescale_factor or 1 / 255
    values = np.repeat((np.arange(256) * factor).astype(np.float32)[:, np.newaxis], 3, axis=1)
    if config.do_normalize is False:
        return values
    mean = 0.5 if config.image_mean is None else config.image_mean
    std = 0.5 if config.image_std is None else config.image_std
    return (values - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)


def _longest_edge(size: int | Size | None, default: int, path: Path) -> int:
    edge = default if size is None else size if isinstance(size, int) else size.longest_edge
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
