"""One picture to the vision encoder's input, equal to what Hugging Face's PIL image processors make of it."""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.image_text_to_text.recipe import PixelRecipe
from tasks.vision.image import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

__all__ = ("Tiles", "WholePicture")

_MOST_CUT_AWAY = 16
"""Times the pixels that are kept: up to this, a picture is resized as a whole before its centre is cut out."""


class Tiles(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the vision encoder sees of one picture.

    Attributes:
        pixel_values: (3, height, width) for each tile, float32, with a tile axis where the encoder wants one, behind a
            batch axis of one.
        pixel_attention_mask: (1, tiles, height, width), true where a tile shows the picture; None for the whole of it.
        rows: of tiles; 0 when the picture is not cut up.
        columns: of tiles; 0 when the picture is not cut up.
    """

    pixel_values: NDArray[np.float32]
    pixel_attention_mask: NDArray[Any] | None = None
    rows: int = 0
    columns: int = 0

    @property
    def count(self) -> int:
        """How many pictures the encoder sees; one that is cut up is also shown whole."""
        return self.rows * self.columns + 1


class WholePicture:
    """Makes one array of a picture, as CLIP, SigLIP and ViT encoders want it.

    Pillow resizes, because it filters when it makes a picture smaller and OpenCV's cubic filter does not; the result is
    the one of Hugging Face's PIL processors to within float32 rounding.
    """

    def __init__(self, recipe: PixelRecipe) -> None:
        self._recipe = recipe
        mean, std = np.asarray(recipe.mean, np.float64), np.asarray(recipe.std, np.float64)
        self._factor = (recipe.scale / std).astype(np.float32)
        self._offset = (mean / std).astype(np.float32)

    def __call__(self, image: Image) -> Tiles:
        from PIL import Image as pillow  # noqa: N813 - the module is named as its class

        picture = pillow.fromarray(image.pixels)
        pixels = self._letterboxed(picture) if self._recipe.letterbox else self._cropped(picture)
        values = pixels.astype(np.float32) * self._factor - self._offset
        if self._recipe.channel_order == "BGR":
            values = values[:, :, ::-1]
        return Tiles(pixel_values=np.ascontiguousarray(values.transpose(2, 0, 1)[np.newaxis]))

    def _cropped(self, picture: "Picture") -> NDArray[np.uint8]:
        height, width = self._recipe.size
        whole_height, whole_width = self._resized(picture)
        top, bottom, above = _window(whole_height, height)
        left, right, before = _window(whole_width, width)
        if whole_height * whole_width <= _MOST_CUT_AWAY * height * width:
            whole = picture.resize((whole_width, whole_height), self._recipe.resample)
            part = np.asarray(whole)[top:bottom, left:right]
        else:
            # The whole of a 1x10000 picture, its shorter side enlarged to 336, would have a billion pixels. Of such a
            # picture only the part that is kept is computed, at the price of a grey level in one pixel of 5000.
            across, down = picture.width / whole_width, picture.height / whole_height
            box = (left * across, top * down, right * across, bottom * down)
            part = np.asarray(picture.resize((right - left, bottom - top), self._recipe.resample, box=box))
        if part.shape[:2] == (height, width):
            return part
        canvas = np.zeros((height, width, 3), np.uint8)
        canvas[above : above + part.shape[0], before : before + part.shape[1]] = part
        return canvas

    def _resized(self, picture: "Picture") -> tuple[int, int]:
        resized = self._recipe.resized
        if not isinstance(resized, int):
            return resized
        short, long = sorted((picture.height, picture.width))
        other = int(resized * long / short)
        return (resized, other) if picture.width > picture.height else (other, resized)

    def _letterboxed(self, picture: "Picture") -> NDArray[np.uint8]:
        height, width = self._recipe.size
        ratio = min(height / picture.height, width / picture.width)
        inner_height = min(height, max(1, round(picture.height * ratio)))
        inner_width = min(width, max(1, round(picture.width * ratio)))
        top, left = (height - inner_height) // 2, (width - inner_width) // 2
        canvas = np.empty((height, width, 3), np.uint8)
        canvas[:] = self._recipe.fill
        canvas[top : top + inner_height, left : left + inner_width] = np.asarray(
            picture.resize((inner_width, inner_height), self._recipe.resample)
        )
        return canvas


def _window(whole: int, kept: int) -> tuple[int, int, int]:
    """Start and end of the centre `kept` of `whole`, and the padding before it where `kept` is more."""
    if kept <= whole:
        start = (whole - kept) // 2
        return start, start + kept, 0
    # An odd pixel of padding goes before the picture, as Hugging Face has it.
    return 0, whole, (kept - whole + 1) // 2
