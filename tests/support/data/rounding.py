"""Compare images that were resized with Pillow's filters in arithmetic of different precision."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def assert_equal_but_for_rounding(
    found: NDArray[Any], expected: ArrayLike, *, step: float | NDArray[Any] = 1, share: float = 0.01
) -> None:
    """Check that few values differ by one byte, and at most one in 10,000 by two.

    Args:
        found: the values.
        expected: values of the same shape.
        step: the difference that one byte makes, which broadcasts to the values.
        share: the share of the values that may differ.
    """
    difference = np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64)) / step
    assert found.shape == np.shape(expected)
    assert difference.max() < 2.01
    # Small images may have one such value.
    assert np.sum(difference > 1.01) <= max(1, 1e-4 * difference.size)
    assert np.sum(difference > 0.01) <= max(3, share * difference.size)
