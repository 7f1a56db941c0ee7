"""Histograms of latencies with exponential buckets. Histograms of different times can be added.

The method is that of HdrHistogram and DDSketch (Masson et al., 2019, section 2.1). The buckets end at powers of
``(1 + a) / (1 - a)``, so that one value per bucket has a relative error of at most ``a``. Here ``a`` is 3 %, between 10
microseconds and 1,000 seconds. Latencies outside this range count as its ends.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RELATIVE_ERROR = 0.03

_SHORTEST, _LONGEST = 10_000, 1_000_000_000_000
_GROWTH = math.log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))
_OFFSET = math.log(_SHORTEST) / _GROWTH

BUCKETS = math.ceil(math.log(_LONGEST / _SHORTEST) / _GROWTH) + 1
"""Number of buckets. Bucket 0 holds latencies of at most 10 microseconds."""

# The value in each bucket with the smallest relative error, in nanoseconds.
_MIDDLES = _SHORTEST * np.exp(_GROWTH * np.arange(BUCKETS)) * (1 - RELATIVE_ERROR)
_MIDDLES[0] = _SHORTEST
_ENDS = _SHORTEST * np.exp(_GROWTH * np.arange(BUCKETS))

Counts = npt.NDArray[np.uint64]


def bucket_of(nanoseconds: int) -> int:
    """Return the index of the bucket of a latency."""
    if nanoseconds <= _SHORTEST:
        return 0
    if nanoseconds >= _LONGEST:
        return BUCKETS - 1
    return math.ceil(math.log(nanoseconds) / _GROWTH - _OFFSET)


def quantiles(counts: Counts, fractions: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the quantiles of histograms.

    Args:
        counts: shape ``(..., BUCKETS)``, one histogram along the last axis.
        fractions: greater than 0, at most 1.

    Returns:
        Nanoseconds, shape ``(..., len(fractions))``, within `RELATIVE_ERROR`; NaN for an empty histogram.
    """
    running = counts.cumsum(axis=-1)
    total = running[..., -1:]
    # Subtract the rounding error of the product before rounding up: 0.999 * 1000 is slightly more than 999.
    ranks = np.maximum(np.ceil(total * np.asarray(fractions) - 1e-9 * np.maximum(total, 1)), 1)
    buckets = (running[..., None, :] < ranks[..., :, None]).sum(axis=-1)
    return np.where(total > 0, _MIDDLES[np.minimum(buckets, BUCKETS - 1)], np.nan)


def cumulative(counts: Counts) -> Sequence[tuple[float, float]]:
    """Return the cumulative distribution as pairs of nanoseconds and a fraction, without empty buckets."""
    (filled,) = np.nonzero(counts)
    running = counts.cumsum()
    return [(float(_ENDS[index]), float(running[index] / running[-1])) for index in filled]
