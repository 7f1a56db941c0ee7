"""Convert between FP32 and BF16. NumPy has no BF16, so arrays hold its bits: the upper halves of FP32 numbers."""

import numpy as np
from numpy.typing import NDArray

_NAN = np.uint16(0x7FC0)


def to_bfloat16_bits(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of the BF16 nearest to each of `numbers`, ties to even; overflow becomes infinity."""
    bits = numbers.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(numbers), _NAN, rounded)


def from_bfloat16_bits(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the exact FP32 values of BF16 `bits`."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
