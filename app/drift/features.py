"""Measure features of an image and of a prediction on it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.vision.image import Image

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
"""Names of the values of `image_features`, in order."""

PREDICTION_FEATURES = ("findings", "best score", "mean score")
"""Names of the values of `prediction_features`, in order."""

_THUMBNAIL = 128
_WINDOW = 512
_DARK, _BRIGHT = 16, 239


def image_features(image: Image) -> NDArray[np.float64]:
    """Return the `IMAGE_FEATURES` of an image, of shape (14,).

    Brightness, contrast and colours use values 0..255. Saturation and the shares of dark and bright pixels are 0..1.
    Sharpness is log(1 + variance of the Laplacian). Aspect is log2(width / height), and size is log2 of the pixel
    count. Colours come from a thumbnail. Sharpness comes from the centre at full size, because thumbnails are always
    sharp.
    """
    pixels = image.pixels
    scale = _THUMBNAIL / max(image.height, image.width)
    small: NDArray[np.uint8] = pixels if scale >= 1 else _shrink(pixels, scale)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    colours: Any = cv2.meanStdDev(small)
    light: Any = cv2.meanStdDev(grey)
    largest, smallest = small.max(axis=2), small.min(axis=2)
    saturation = (largest - smallest) / np.maximum(largest, 1).astype(np.float32)
    return np.array(
        [
            *(float(statistic[0, 0]) for statistic in light),
            _sharpness(pixels),
            float(saturation.mean()),
            *(float(value) for statistic in colours for value in statistic[:, 0]),
            float(np.mean(grey < _DARK)),
            float(np.mean(grey > _BRIGHT)),
            np.log2(image.width / image.height),
            np.log2(image.width * image.height),
        ],
        np.float64,
    )


def prediction_features(records: Sequence[Mapping[str, object]]) -> NDArray[np.float64]:
    """Return the `PREDICTION_FEATURES` of an answer, of shape (3,); scores are 0 without predictions."""
    values = (record.get("score") for record in records)
    scores = [float(value) for value in values if isinstance(value, int | float)]
    return np.array([len(records), max(scores, default=0.0), float(np.mean(scores)) if scores else 0.0], np.float64)


def label_counts(records: Sequence[Mapping[str, object]]) -> dict[str, int]:
    """Count each label of an answer."""
    labels = [record.get("label") for record in records]
    return dict(Counter(label for label in labels if isinstance(label, str)))


def _shrink(pixels: NDArray[np.uint8], scale: float) -> Any:
    height, width = pixels.shape[:2]
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)


def _sharpness(pixels: NDArray[np.uint8]) -> float:
    height, width = pixels.shape[:2]
    top, left = max(0, height - _WINDOW) // 2, max(0, width - _WINDOW) // 2
    window = np.ascontiguousarray(pixels[top : top + _WINDOW, left : left + _WINDOW])
    laplacian = cv2.Laplacian(cv2.cvtColor(window, cv2.COLOR_RGB2GRAY), cv2.CV_32F)
    return float(np.log1p(laplacian.var()))
