"""Resize images with Pillow's antialiased filters.

cykooz-resizer computes them with the processor's vector instructions, in a quarter of Pillow's time. It rounds the
weights of a filter to 16 bits, so about one byte in 300 differs from Pillow's by 1. The negative weights of bicubic and
Lanczos filters amplify this in the second pass: one byte in 100,000 differs by 2. Pillow itself resizes where the
package is not installed, with filters that have hard edges, and for the few sizes with more differences.
"""

import math
from functools import lru_cache
from threading import local
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.images.preprocessing import PILLOW_FILTERS, Interpolation

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a part of an image, pixels."""

_FILTERS: dict[Interpolation, tuple[str, int]] = {
    "bilinear": ("bilinear", 1),
    "bicubic": ("catmull_rom", 2),
    "lanczos": ("lanczos3", 3),
}
"""The filter's name in cykooz-resizer, and the pixels that it covers on either side of its centre.

With "nearest" and "area", rounded weights or positions would select other pixels.
"""

_NOISE_ROWS = 16
_MAX_SHARE = 0.01
"""Share of the bytes of noise that may differ from Pillow's by 1."""

_thread = local()


def resample(
    pixels: NDArray[Any], size: tuple[int, int], interpolation: Interpolation, box: Box | None = None
) -> NDArray[Any]:
    """Resize an image, or the part in `box`, to a (height, width) as Pillow does.

    Pixels are bytes (rows, columns, 3), or float32 (rows, columns). Filters also read the pixels around the box.
    """
    rows, columns = pixels.shape[:2]
    if box is None and (rows, columns) == size:
        return pixels
    left, top, right, bottom = box or (0, 0, columns, rows)
    if interpolation not in _FILTERS or _package() is None:
        return with_pillow(pixels, size, interpolation, box)
    if pixels.ndim == 3:
        across = _rounded_share(interpolation, columns, left, right, size[1])
        if across + _rounded_share(interpolation, rows, top, bottom, size[0]) > _MAX_SHARE:
            return with_pillow(pixels, size, interpolation, box)
    return _convolve(pixels, size, interpolation, (left, top, right, bottom))


def with_pillow(
    pixels: NDArray[Any], size: tuple[int, int], interpolation: Interpolation, box: Box | None = None
) -> NDArray[Any]:
    """Do the same as `resample` by Pillow."""
    import PIL.Image

    image, (height, width) = PIL.Image.fromarray(pixels), size
    return np.asarray(image.resize((width, height), PIL.Image.Resampling(PILLOW_FILTERS[interpolation]), box))


def _convolve(pixels: NDArray[Any], size: tuple[int, int], interpolation: Interpolation, box: Box) -> NDArray[Any]:
    import PIL.Image

    package, (height, width), (rows, columns) = _package(), size, pixels.shape[:2]
    # Pillow computes with a box of 32-bit floats.
    edges = np.array(box, np.float32)
    left, top, _, bottom = edges.tolist()
    box_width, box_height = (edges[2:] - edges[:2]).tolist()
    name, support = _FILTERS[interpolation]
    # Only the rows that the filter reads are copied.
    margin = math.ceil(support * max(1, box_height / height)) + 1
    first, last = max(0, math.floor(top) - margin), min(rows, math.ceil(bottom) + margin)
    top, part_rows = top - first, last - first
    box_width, box_height = min(box_width, columns - left), min(box_height, part_rows - top)
    source = _as_pillow(pixels[first:last])
    resized = PIL.Image.new(source.mode, (width, height), None)
    # Each thread has its own: they would wait for a shared one.
    if (resizer := getattr(_thread, "resizer", None)) is None:
        resizer = _thread.resizer = package.Resizer()
    if rows > height and rows - height > 2 * (columns - width):
        # The order of the passes changes how bytes are rounded. Here Pillow 13 resizes columns first, as the crate.
        resizer.resize_pil(source, resized, _options(name, left, top, box_width, box_height))
    else:
        across = PIL.Image.new(source.mode, (width, part_rows), None)
        resizer.resize_pil(source, across, _options(name, left, 0, box_width, part_rows))
        resizer.resize_pil(across, resized, _options(name, 0, top, width, box_height))
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
def _rounded_share(interpolation: Interpolation, length: int, start: float, stop: float, target: int) -> float:
    """Return the share of bytes that differ from Pillow's after one side is resized.

    With some ratios, such as 5 to 4, many values lie halfway between two bytes, and rounded weights decide. The share
    is measured for each size, on a few rows of noise.
    """
    noise: NDArray[Any] = np.random.default_rng(0).integers(0, 256, (_NOISE_ROWS, length, 3), np.uint8)
    size, box = (_NOISE_ROWS, target), (start, 0, stop, _NOISE_ROWS)
    differs: NDArray[Any] = _convolve(noise, size, interpolation, box) != with_pillow(noise, size, interpolation, box)
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
