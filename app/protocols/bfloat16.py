"""BF16, which NumPy does not have: an array of its bits is the upper halves of FP32 numbers."""

import numpy as np
from numpy.typing import NDArray

__all__ = ("bits_of", "numbers_of")

_NOT_A_NUMBER = np.uint16(0x7FC0)


def bits_of(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest BF16 to each of `numbers`, ties to even; what is too large is infinite."""
    bits = numbers.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(numbers), _NOT_A_NUMBER, rounded)


def numbers_of(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers that `bits` are, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
