"""How well a saliency map tells what matters to the model: deletion and insertion (Petsiuk et al. 2018, section 4.2).

The pixels of a picture are taken away, or put back, in the order of their saliency, and the model is asked again at
every step. With a map that is right the score falls early when pixels are deleted, and rises early when they come back.
"""

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ("area_under", "deleted", "inserted")

_BLUR = 0.15


def deleted(pixels: NDArray[np.uint8], saliency: NDArray[np.float32], steps: int) -> Iterator[NDArray[np.uint8]]:
    """Copies of a picture with more and more of its most salient pixels replaced by its mean colour: none to all.

    Args:
        pixels: (height, width, 3) uint8.
        saliency: (height, width).
        steps: one copy more than that.
    """
    emptied = np.empty_like(pixels)
    emptied[:] = np.rint(pixels.mean(axis=(0, 1)))
    return _exchanged(pixels, emptied, saliency, steps)


def inserted(pixels: NDArray[np.uint8], saliency: NDArray[np.float32], steps: int) -> Iterator[NDArray[np.uint8]]:
    """Copies of a blurred picture with more and more of its most salient pixels made sharp: none to all.

    Args:
        pixels: (height, width, 3) uint8.
        saliency: (height, width).
        steps: one copy more than that.
    """
    blurred = cv2.GaussianBlur(pixels, (0, 0), _BLUR * max(pixels.shape[:2]))
    return _exchanged(np.asarray(blurred, np.uint8), pixels, saliency, steps)


def area_under(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean height of the curve through (steps + 1, ...) scores, by the trapezoidal rule: 0..1."""
    return np.asarray((scores[1:] + scores[:-1]) / 2, np.float64).mean(axis=0)


def _exchanged(
    before: NDArray[np.uint8], after: NDArray[np.uint8], saliency: NDArray[Any], steps: int
) -> Iterator[NDArray[np.uint8]]:
    order = np.argsort(-saliency, axis=None, kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    rank = rank.reshape(saliency.shape)
    for step in range(steps + 1):
        exchanged = rank < round(order.size * step / steps)
        yield np.where(exchanged[..., np.newaxis], after, before)
