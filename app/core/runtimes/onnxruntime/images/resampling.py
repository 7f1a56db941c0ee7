"""Resize images with Pillow's antialiased filters.

cykooz-resizer computes them with the processor's vector instructions, in a quarter of Pillow's time. It rounds the
weights of a filter to 16 bits, so about one byte in 300 differs from Pillow's by 1. The negative weights of bicubic and
Lanczos filters amplify this in the second pass: one byte in 100,000 differs by 2. Pillow itself resizes where the
package is not installed, with filters that have hard edges, and the few sides that would have more differences.
"""

import math
from collections.abc import Sequence
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

    def widened(self) -> "_Side":
        """Return the side with a kept part that begins and ends between two pixels of the image."""
        period = self.target // math.gcd(self.length, self.target)
        return self._replace(first=self.first // period * period, last=math.ceil(self.last / period) * period)

    def read_by(self, interpolation: Interpolation) -> tuple[int, int]:
        """Return the first pixel of the image that the filter reads, and the one behind the last."""
        margin = math.ceil(_CRATE_FILTERS[interpolation][1] * max(1, self.length / self.target)) + 1
        return max(0, math.floor(self.start) - margin), min(self.length, math.ceil(self.stop) + margin)


_Sides = tuple[_Side, _Side]
"""The width and the height."""


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
    sides = _Side(columns, width, left, right), _Side(rows, height, top, bottom)
    if interpolation not in _CRATE_FILTERS or _package() is None:
        return _by_pillow(pixels, interpolation, sides)
    if pixels.ndim == 2:
        return _by_crate(pixels, interpolation, sides)
    shares = [_rounded_share(interpolation, side) for side in sides]
    return _by_crate(pixels, interpolation, sides, [share > _MAX_SHARE - min(shares) for share in shares])


def _by_pillow(pixels: NDArray[Any], interpolation: Interpolation, sides: _Sides) -> NDArray[Any]:
    import PIL.Image

    image, method = PIL.Image.fromarray(pixels), PIL.Image.Resampling(PILLOW_FILTERS[interpolation])
    width, height = sides
    if width.target * height.target <= _MAX_CROPPED_RATIO * width.kept * height.kept:
        whole = np.asarray(image.resize((width.target, height.target), method))
        return whole[height.first : height.last, width.first : width.last]
    # Pillow rounds corners between pixels, which moves the edges of "nearest" and "area" and the ties of other filters.
    box = (width.start, height.start, width.stop, height.stop)
    return np.asarray(image.resize((width.kept, height.kept), method, box))


def _by_crate(
    pixels: NDArray[Any], interpolation: Interpolation, sides: _Sides, exact: Sequence[bool] = (False, False)
) -> NDArray[Any]:
    """Resize one side after the other; Pillow resizes the exact ones."""
    import PIL.Image

    wide, tall = (side.widened() if by_pillow else side for side, by_pillow in zip(sides, exact, strict=True))
    # Only the pixels that the filter reads are copied.
    (left, right), (top, bottom) = wide.read_by(interpolation), tall.read_by(interpolation)
    image = _as_pillow(pixels[top:bottom, left:right])
    # Each thread has its own: they would wait for a shared one.
    if (resizer := getattr(_thread, "resizer", None)) is None:
        resizer = _thread.resizer = _package().Resizer()
    # The order changes how bytes are rounded. This is the order in which Pillow 13 resizes all pixels.
    height_first = tall.length > tall.target and tall.length - tall.target > 2 * (wide.length - wide.target)
    for axis in (1, 0) if height_first else (0, 1):
        side, offset = ((wide, left), (tall, top))[axis]
        size, box = list(image.size), [0.0, 0.0, *image.size]
        size[axis], box[axis], box[axis + 2] = side.kept, side.start - offset, side.stop - offset
        if exact[axis]:
            method = PIL.Image.Resampling(PILLOW_FILTERS[interpolation])
            image = image.resize(size, method, (box[0], box[1], box[2], box[3]))
        else:
            resized = PIL.Image.new(image.mode, size, None)
            resizer.resize_pil(image, resized, _options(_CRATE_FILTERS[interpolation][0], *box))
            image = resized
    first_row, first_column = sides[1].first - tall.first, sides[0].first - wide.first
    found = np.asarray(image)[first_row : first_row + sides[1].kept, first_column : first_column + sides[0].kept]
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
    sides = side, _Side(_NOISE_ROWS, _NOISE_ROWS, 0, _NOISE_ROWS)
    differs: NDArray[Any] = _by_crate(noise, interpolation, sides) != _by_pillow(noise, interpolation, sides)
    return float(differs.mean())


@lru_cache(maxsize=1)
def _package() -> Any:
    """Return cykooz-resizer; None if it is not installed. It imports Pillow, so it is imported when needed."""
    try:
        import cykooz_resizer  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        return None
    return cykooz_resizer


@lru_cache(maxsize=256)
def _options(name: str, left: float, top: float, right: float, bottom: float) -> Any:
    package = _package()
    return package.ResizeOptions(
        resize_alg=package.ResizeAlg.convolution(package.FilterType[name]),
        crop_box=package.CropBox(left, top, right - left, bottom - top),
    )
