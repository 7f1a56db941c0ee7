"""Latencies counted in buckets that grow by a constant factor, so that counts of any two spans of time can be added.

The idea is that of HdrHistogram and DDSketch (Masson et al., 2019, section 2.1): with buckets that end at powers of
``(1 + a) / (1 - a)``, the one value that stands for a bucket is within the relative error ``a`` of every latency in it.
Here ``a`` is 3 %, between 10 microseconds and 1,000 seconds. What is shorter counts as 10 microseconds, what is longer
as 1,000 seconds.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ("BUCKETS", "RELATIVE_ERROR", "bucket_of", "cumulative", "quantiles")

RELATIVE_ERROR = 0.03

_SHORTEST, _LONGEST = 10_000, 1_000_000_000_000
_GROWTH = math.log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))
_OFFSET = math.log(_SHORTEST) / _GROWTH

BUCKETS = math.ceil(math.log(_LONGEST / _SHORTEST) / _GROWTH) + 1
"""Bucket 0 holds what is no longer than the shortest latency."""

# The middle, in the sense of the relative error, of each bucket: nanoseconds.
_MIDDLES = _SHORTEST * np.exp(_GROWTH * np.arange(BUCKETS)) * (1 - RELATIVE_ERROR)
_MIDDLES[0] = _SHORTEST
_ENDS = _SHORTEST * np.exp(_GROWTH * np.arange(BUCKETS))

Counts = npt.NDArray[np.uint64]


def bucket_of(nanoseconds: int) -> int:
    """The bucket in which a latency counts."""
    if nanoseconds <= _SHORTEST:
        return 0
    if nanoseconds >= _LONGEST:
        return BUCKETS - 1
    return math.ceil(math.log(nanoseconds) / _GROWTH - _OFFSET)


def quantiles(counts: Counts, fractions: Sequence[float]) -> npt.NDArray[np.float64]:
    """The shortest latencies that at least these fractions of all latencies do not exceed.

    Args:
        counts: shape ``(..., BUCKETS)``, one histogram along the last axis.
        fractions: each above 0, up to 1.

    Returns:
        Nanoseconds, shape ``(..., len(fractions))``, within `RELATIVE_ERROR`; NaN for a histogram of nothing.
    """
    running = counts.cumsum(axis=-1)
    total = running[..., -1:]
    # The rank is rounded up but for the float error of the product: 0.999 * 1000 is a little more than 999.
    ranks = np.maximum(np.ceil(total * np.asarray(fractions) - 1e-9 * np.maximum(total, 1)), 1)
    found = (running[..., None, :] < ranks[..., :, None]).sum(axis=-1)
    return np.where(total > 0, _MIDDLES[np.minimum(found, BUCKETS - 1)], np.nan)


def cumulative(counts: Counts) -> Sequence[tuple[float, float]]:
    """The share of latencies up to the end of each bucket that holds any: pairs of nanoseconds and a fraction."""
    (held,) = np.nonzero(counts)
    running = counts.cumsum()
    return [(float(_ENDS[index]), float(running[index] / running[-1])) for index in held]
