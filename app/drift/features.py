"""What is measured of a picture, and of what a model said of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.vision.image import Image

__all__ = ("FINDING_FEATURES", "IMAGE_FEATURES", "finding_features", "image_features", "label_counts")

IMAGE_FEATURES = (
    "brightness",
    "contrast",
    "sharpness",
    "saturation",
    "red",
    "green",
    "blue",
    "red deviation",
    "green deviation",
    "blue deviation",
    "dark pixels",
    "bright pixels",
    "aspect",
    "size",
)
"""Numbers of a picture, in the order of `image_features`."""

FINDING_FEATURES = ("findings", "best score", "mean score")
"""Numbers of an answer, in the order of `finding_features`."""

_THUMBNAIL = 128
_WINDOW = 512
_DARK, _BRIGHT = 16, 239


def image_features(image: Image) -> NDArray[np.float64]:
    """(14,) `IMAGE_FEATURES` of a picture.

    Brightness, contrast and colours are of values 0..255; saturation, and dark and bright pixels as shares, 0..1.
    Sharpness is the natural logarithm of one more than the variance of the Laplacian; aspect that of width by height,
    and size that of pixels, to base 2. Colours are taken from a small copy, sharpness from the middle at full size,
    because a small copy is always sharp.
    """
    pixels = image.pixels
    scale = _THUMBNAIL / max(image.height, image.width)
    small: NDArray[np.uint8] = pixels if scale >= 1 else _shrunk(pixels, scale)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    colours: Any = cv2.meanStdDev(small)
    light: Any = cv2.meanStdDev(grey)
    largest, smallest = small.max(axis=2), small.min(axis=2)
    saturation = (largest - smallest) / np.maximum(largest, 1).astype(np.float32)
    return np.array(
        [
            *(float(found[0, 0]) for found in light),
            _sharpness(pixels),
            float(saturation.mean()),
            *(float(each) for found in colours for each in found[:, 0]),
            float(np.mean(grey < _DARK)),
            float(np.mean(grey > _BRIGHT)),
            np.log2(image.width / image.height),
            np.log2(image.width * image.height),
        ],
        np.float64,
    )


def finding_features(records: Sequence[Mapping[str, object]]) -> NDArray[np.float64]:
    """(3,) `FINDING_FEATURES` of an answer; scores of nothing found are 0."""
    scores = [float(each) for each in (record.get("score") for record in records) if isinstance(each, int | float)]
    return np.array([len(records), max(scores, default=0.0), float(np.mean(scores)) if scores else 0.0], np.float64)


def label_counts(records: Sequence[Mapping[str, object]]) -> dict[str, int]:
    """How often each label is in an answer."""
    labels = [record.get("label") for record in records]
    return dict(Counter(label for label in labels if isinstance(label, str)))


def _shrunk(pixels: NDArray[np.uint8], scale: float) -> Any:
    height, width = pixels.shape[:2]
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)


def _sharpness(pixels: NDArray[np.uint8]) -> float:
    height, width = pixels.shape[:2]
    top, left = max(0, height - _WINDOW) // 2, max(0, width - _WINDOW) // 2
    window = np.ascontiguousarray(pixels[top : top + _WINDOW, left : left + _WINDOW])
    laplacian = cv2.Laplacian(cv2.cvtColor(window, cv2.COLOR_RGB2GRAY), cv2.CV_32F)
    return float(np.log1p(laplacian.var()))
