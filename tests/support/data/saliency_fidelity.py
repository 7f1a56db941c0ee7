"""Measure the fidelity of saliency maps: deletion and insertion (Petsiuk et al. 2018, section 4.2).

The pixels of an image are removed, or restored, in the order of their saliency, and the model runs at every step. With
a correct map the score falls early when pixels are deleted, and rises early when they are restored.
"""

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

_BLUR = 0.15


def deletion_steps(pixels: NDArray[np.uint8], saliency: NDArray[np.float32], steps: int) -> Iterator[NDArray[np.uint8]]:
    """Yield copies of an image with more and more of its most salient pixels replaced by its mean colour.

    Args:
        pixels: (height, width, 3) uint8.
        saliency: (height, width).
        steps: number of steps from none to all pixels; yields one copy more.
    """
    uniform = np.empty_like(pixels)
    uniform[:] = np.rint(pixels.mean(axis=(0, 1)))
    return _replaced(pixels, uniform, saliency, steps)


def insertion_steps(
    pixels: NDArray[np.uint8], saliency: NDArray[np.float32], steps: int
) -> Iterator[NDArray[np.uint8]]:
    """Yield copies of a blurred image with more and more of its most salient pixels restored.

    Args:
        pixels: (height, width, 3) uint8.
        saliency: (height, width).
        steps: number of steps from none to all pixels; yields one copy more.
    """
    blurred = cv2.GaussianBlur(pixels, (0, 0), _BLUR * max(pixels.shape[:2]))
    return _replaced(np.asarray(blurred, np.uint8), pixels, saliency, steps)


def area_under_curve(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the area under the curve of (steps + 1, ...) scores by the trapezoidal rule: 0..1."""
    return np.asarray((scores[1:] + scores[:-1]) / 2, np.float64).mean(axis=0)


def _replaced(
    before: NDArray[np.uint8], after: NDArray[np.uint8], saliency: NDArray[Any], steps: int
) -> Iterator[NDArray[np.uint8]]:
    order = np.argsort(-saliency, axis=None, kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    rank = rank.reshape(saliency.shape)
    for step in range(steps + 1):
        replaced = rank < round(order.size * step / steps)
        yield np.where(replaced[..., np.newaxis], after, before)
