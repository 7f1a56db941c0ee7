"""Resize images with Pillow's antialiased filters.

cykooz-resizer computes them with the processor's vector instructions, in a quarter of Pillow's time. It rounds the
weights of a filter to 16 bits, so about one byte in 300 differs from Pillow's by 1. The negative weights of bicubic and
Lanczos filters amplify this in the second pass: one byte in 100,000 differs by 2. Pillow itself resizes where the
package is not installed, with filters that have hard edges, and for the few sizes with more differences.
"""

import math
from functools import lru_cache
from threading import local
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.images.preprocessing import PILLOW_FILTERS, Interpolation

Window = tuple[int, int, int, int]
"""Left, top, right and bottom of the kept part of a resized image, pixels."""

_CRATE_FILTERS: dict[Interpolation, tuple[str, int]] = {
    "bilinear": ("bilinear", 1),
    "bicubic": ("catmull_rom", 2),
    "lanczos": ("lanczos3", 3),
}
"""The filter's name in cykooz-resizer, and the pixels that it covers on either side of its centre.

With "nearest" and "area", rounded weights or positions would select other pixels.
"""

_MAX_CROPPED_RATIO = 16
"""Maximum ratio of resized to kept pixels for which all are resized: of a thin strip, very little is kept."""

_NOISE_ROWS = 16
_MAX_SHARE = 0.01
"""Share of the bytes of noise that may differ from Pillow's by 1."""

_thread = local()


class _Side(NamedTuple):
    """How one side of an image is resized: its `length` becomes `target`, whose pixels `first` to `last` are kept."""

    length: int
    target: int
    first: int
    last: int

    @property
    def kept(self) -> int:
        return self.last - self.first

    @property
    def start(self) -> float:
        """Where the kept part begins in the image, pixels."""
        return self.first * self.length / self.target

    @property
    def stop(self) -> float:
        return min(self.last * self.length / self.target, self.length)


def resample(
    pixels: NDArray[Any], size: tuple[int, int], interpolation: Interpolation, window: Window | None = None
) -> NDArray[Any]:
    """Resize an image to a (height, width) as Pillow does, and return the part in the window.

    Pixels are bytes (rows, columns, 3), or float32 (rows, columns). The filters also read the pixels around the part.
    """
    (rows, columns), (height, width) = pixels.shape[:2], size
    left, top, right, bottom = window or (0, 0, width, height)
    if (rows, columns) == size:
        return pixels[top:bottom, left:right] if window else pixels
    across, down = _Side(columns, width, left, right), _Side(rows, height, top, bottom)
    if interpolation not in _CRATE_FILTERS or _package() is None:
        return _by_pillow(pixels, interpolation, across, down)
    if pixels.ndim == 3:
        share = _rounded_share(interpolation, across) + _rounded_share(interpolation, down)
        if share > _MAX_SHARE:
            return _by_pillow(pixels, interpolation, across, down)
    return _by_crate(pixels, interpolation, across, down)


def _by_pillow(pixels: NDArray[Any], interpolation: Interpolation, across: _Side, down: _Side) -> NDArray[Any]:
    import PIL.Image

    image, method = PIL.Image.fromarray(pixels), PIL.Image.Resampling(PILLOW_FILTERS[interpolation])
    if across.target * down.target <= _MAX_CROPPED_RATIO * across.kept * down.kept:
        whole = np.asarray(image.resize((across.target, down.target), method))
        return whole[down.first : down.last, across.first : across.last]
    # Corners between pixels are rounded, which moves the edges of "nearest" and "area" and the ties of other filters.
    box = (across.start, down.start, across.stop, down.stop)
    return np.asarray(image.resize((across.kept, down.kept), method, box))


def _by_crate(pixels: NDArray[Any], interpolation: Interpolation, across: _Side, down: _Side) -> NDArray[Any]:
    import PIL.Image

    name, support = _CRATE_FILTERS[interpolation]
    # Only the rows that the filter reads are copied.
    margin = math.ceil(support * max(1, down.length / down.target)) + 1
    first, last = max(0, math.floor(down.start) - margin), min(down.length, math.ceil(down.stop) + margin)
    top, width, height = down.start - first, across.stop - across.start, down.stop - down.start
    source = _as_pillow(pixels[first:last])
    resized = PIL.Image.new(source.mode, (across.kept, down.kept), None)
    # Each thread has its own: they would wait for a shared one.
    if (resizer := getattr(_thread, "resizer", None)) is None:
        resizer = _thread.resizer = _package().Resizer()
    # The order of the passes changes how bytes are rounded. This is the order in which Pillow 13 resizes all pixels.
    if down.length > down.target and down.length - down.target > 2 * (across.length - across.target):
        resizer.resize_pil(source, resized, _options(name, across.start, top, width, height))
    else:
        wide = PIL.Image.new(source.mode, (across.kept, last - first), None)
        resizer.resize_pil(source, wide, _options(name, across.start, 0, width, last - first))
        resizer.resize_pil(wide, resized, _options(name, 0, top, across.kept, height))
    found = np.asarray(resized)
    return np.asarray(cv2.cvtColor(found, cv2.COLOR_RGBA2RGB)) if pixels.ndim == 3 else found


def _as_pillow(pixels: NDArray[Any]) -> Any:
    """Return pixels as an image of Pillow, which cykooz-resizer reads without a copy; it would copy an array two times.

    Colours get a fourth byte, as Pillow's images have, and a mode that has no alpha.
    """
    import PIL.Image

    if pixels.ndim == 2:
        return PIL.Image.fromarray(pixels)
    padded = cv2.cvtColor(pixels, cv2.COLOR_RGB2RGBA)
    return PIL.Image.frombuffer("CMYK", (pixels.shape[1], pixels.shape[0]), padded, "raw", "CMYK", 0, 1)


@lru_cache(maxsize=1024)
def _rounded_share(interpolation: Interpolation, side: _Side) -> float:
    """Return the share of bytes that differ from Pillow's after one side is resized.

    With some ratios, such as 5 to 4, many values lie halfway between two bytes, and rounded weights decide. The share
    is measured for each size, on a few rows of noise.
    """
    noise: NDArray[Any] = np.random.default_rng(0).integers(0, 256, (_NOISE_ROWS, side.length, 3), np.uint8)
    same = _Side(_NOISE_ROWS, _NOISE_ROWS, 0, _NOISE_ROWS)
    differs: NDArray[Any] = _by_crate(noise, interpolation, side, same) != _by_pillow(noise, interpolation, side, same)
    return float(differs.mean())


@lru_cache(maxsize=1)
def _package() -> Any:
    """Return cykooz-resizer; None if it is not installed. It imports Pillow, so it is imported when needed."""
    try:
        import cykooz_resizer
    except ImportError:
        return None
    return cykooz_resizer


@lru_cache(maxsize=256)
def _options(name: str, left: float, top: float, width: float, height: float) -> Any:
    package = _package()
    return package.ResizeOptions(
        resize_alg=package.ResizeAlg.convolution(package.FilterType[name]),
        crop_box=package.CropBox(left, top, width, height),
    )
