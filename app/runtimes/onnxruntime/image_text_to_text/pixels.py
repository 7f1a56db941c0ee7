"""Convert an image to the vision encoder's input, with the same result as Hugging Face's PIL image processors."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.image_text_to_text.recipe import PixelRecipe, ProcessorConfiguration, Sides
from app.settings.model import ModelError
from tasks.vision.image import Image

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_MAX_CROPPED_RATIO = 16
"""Maximum ratio of resized to kept pixels for which the whole image is resized before the centre crop."""

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


class SingleImageProcessor:
    """Converts an image to one array for CLIP, SigLIP and ViT encoders.

    It resizes with Pillow, because Pillow antialiases and OpenCV's cubic filter does not. The result equals that of
    Hugging Face's PIL processors up to float32 rounding.
    """

    def __init__(self, recipe: PixelRecipe) -> None:
        self._recipe = recipe
        mean, std = np.asarray(recipe.mean, np.float64), np.asarray(recipe.std, np.float64)
        self._factor = (recipe.scale / std).astype(np.float32)
        self._offset = (mean / std).astype(np.float32)

    def __call__(self, image: Image) -> Tiles:
        from PIL import Image as pillow  # noqa: N813 - the module is named as its class

        pil_image = pillow.fromarray(image.pixels)
        pixels = self._letterbox(pil_image) if self._recipe.letterbox else self._crop(pil_image)
        values = pixels.astype(np.float32) * self._factor - self._offset
        if self._recipe.channel_order == "BGR":
            values = values[:, :, ::-1]
        return Tiles(pixel_values=np.ascontiguousarray(values.transpose(2, 0, 1)[np.newaxis]))

    def _crop(self, pil_image: "PilImage") -> NDArray[np.uint8]:
        height, width = self._recipe.size
        resized_height, resized_width = self._resized_size(pil_image)
        top, bottom, pad_top = _window(resized_height, height)
        left, right, pad_left = _window(resized_width, width)
        if resized_height * resized_width <= _MAX_CROPPED_RATIO * height * width:
            resized = pil_image.resize((resized_width, resized_height), self._recipe.resample)
            part = np.asarray(resized)[top:bottom, left:right]
        else:
            # A 1x10000 image with its shorter side enlarged to 336 would have a billion pixels. Compute only the kept
            # part of such an image; one pixel in 5000 then differs by one grey level.
            across, down = pil_image.width / resized_width, pil_image.height / resized_height
            box = (left * across, top * down, right * across, bottom * down)
            part = np.asarray(pil_image.resize((right - left, bottom - top), self._recipe.resample, box=box))
        if part.shape[:2] == (height, width):
            return part
        canvas = np.zeros((height, width, 3), np.uint8)
        canvas[pad_top : pad_top + part.shape[0], pad_left : pad_left + part.shape[1]] = part
        return canvas

    def _resized_size(self, pil_image: "PilImage") -> tuple[int, int]:
        resized = self._recipe.resized
        if not isinstance(resized, int):
            return resized
        short, long = sorted((pil_image.height, pil_image.width))
        other = int(resized * long / short)
        return (resized, other) if pil_image.width > pil_image.height else (other, resized)

    def _letterbox(self, pil_image: "PilImage") -> NDArray[np.uint8]:
        height, width = self._recipe.size
        ratio = min(height / pil_image.height, width / pil_image.width)
        inner_height = min(height, max(1, round(pil_image.height * ratio)))
        inner_width = min(width, max(1, round(pil_image.width * ratio)))
        top, left = (height - inner_height) // 2, (width - inner_width) // 2
        canvas = np.empty((height, width, 3), np.uint8)
        canvas[:] = self._recipe.fill
        canvas[top : top + inner_height, left : left + inner_width] = np.asarray(
            pil_image.resize((inner_width, inner_height), self._recipe.resample)
        )
        return canvas


class TiledImageProcessor:
    """Resizes an image, cuts it into square tiles, and appends the whole image as the last tile: Idefics3, SmolVLM.

    Args:
        configuration: the configuration of the image processor, and its file.
        folder: the model's folder.

    Raises:
        ModelError: if the configuration is missing, or is not that of a processor with tiles.
    """

    def __init__(self, configuration: tuple[ProcessorConfiguration, Path] | None, folder: Path) -> None:
        if configuration is None:
            raise ModelError(f"{folder} has no usable image processor: preprocessor_config.json is missing")
        config, path = configuration
        if config.family not in TILED_FAMILIES:
            raise ModelError(
                f"{path} has no usable image processor: {config.class_name} does not cut images into tiles"
            )
        self._size = None if config.do_resize is False else _longest_edge(config.size, _LONGEST_EDGE, path)
        self._edge = _longest_edge(config.max_image_size, _TILE_EDGE, path)
        self._splits = config.do_image_splitting is not False
        # Import late: Pillow takes 7 MB, and other models do not need it.
        import PIL.Image

        self._resample = PIL.Image.Resampling(_LANCZOS if config.resample is None else config.resample)
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


def _window(length: int, kept_length: int) -> tuple[int, int, int]:
    """Return start and end of the central `kept_length` of `length`, and the padding before it if that is longer."""
    if kept_length <= length:
        start = (length - kept_length) // 2
        return start, start + kept_length, 0
    # An odd pixel of padding goes before the image, as in Hugging Face.
    return 0, length, (kept_length - length + 1) // 2


def _values(config: ProcessorConfiguration) -> NDArray[np.float32]:
    """Return the input of the network for each of 256 values of R, G and B, (256, 3)."""
    factor = 1.0 if config.do_rescale is False else config.rescale_factor or 1 / 255
    values = np.repeat((np.arange(256) * factor).astype(np.float32)[:, np.newaxis], 3, axis=1)
    if config.do_normalize is False:
        return values
    mean = 0.5 if config.image_mean is None else config.image_mean
    std = 0.5 if config.image_std is None else config.image_std
    return (values - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)


def _longest_edge(size: Sides, default: int, path: Path) -> int:
    edge = default if size is None else size if isinstance(size, int) else size.get("longest_edge")
    if edge is None or not 0 < edge <= _MAX_SIDE:
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
