"""Convert an image to the vision encoder's input, with the same result as Hugging Face's PIL image processors."""

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.image_text_to_text.recipe import PixelRecipe
from tasks.vision.image import Image

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_MAX_CROPPED_RATIO = 16
"""Maximum ratio of resized to kept pixels for which the whole image is resized before the centre crop."""


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


def _window(length: int, kept_length: int) -> tuple[int, int, int]:
    """Return start and end of the central `kept_length` of `length`, and the padding before it if that is longer."""
    if kept_length <= length:
        start = (length - kept_length) // 2
        return start, start + kept_length, 0
    # An odd pixel of padding goes before the image, as in Hugging Face.
    return 0, length, (kept_length - length + 1) // 2
