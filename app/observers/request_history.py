"""Ring buffers of request statistics by second, minute, hour and day.

Histograms of latencies have exponential buckets, so that those of different times can be added. The method is that of
HdrHistogram and DDSketch (Masson et al., 2019, section 2.1). The buckets end at powers of ``(1 + a) / (1 - a)``, so
that one value per bucket has a relative error of at most ``a``. Here ``a`` is 3 %, between 10 microseconds and 1,000
seconds. Latencies outside this range count as its ends.
"""

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

BATCH_SIZES = ("1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256", "257+")
"""The buckets of batch sizes: each ends at a power of two."""

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


class Resolution(Enum):
    """A time interval: its length in seconds, and the number of intervals in a ring."""

    SECONDS = (1, 60)
    MINUTES = (60, 60)
    HOURS = (3600, 24)
    DAYS = (86400, 30)

    @property
    def interval(self) -> int:
        """Return the length of an interval in seconds."""
        return self.value[0]

    @property
    def size(self) -> int:
        """Return the number of intervals in a ring."""
        return self.value[1]


class HistoryWindow(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The last intervals of one resolution, the oldest first; the last one may be incomplete.

    Attributes:
        covered: seconds of each interval since the start of the history, 0 before it. Shape ``(size,)``.
        requests: finished requests.
        failures: finished requests that failed.
        latency: sum of the latencies of successful requests, nanoseconds.
        slowest: highest latency of a successful request, nanoseconds.
        items: images or texts in successful requests.
        latencies: successful requests by the bucket of their latency. Shape ``(size, BUCKETS)``.
        batches: successful requests by bucket of `BATCH_SIZES`. Shape ``(size, len(BATCH_SIZES))``.
    """

    covered: npt.NDArray[np.int64]
    requests: npt.NDArray[np.int64]
    failures: npt.NDArray[np.int64]
    latency: npt.NDArray[np.int64]
    slowest: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    latencies: npt.NDArray[np.uint64]
    batches: npt.NDArray[np.uint64]


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """The gauges of a server at one time.

    Attributes:
        in_flight: requests that run or wait.
        waiting: requests that wait for a worker.
        cpu: processor time per second since the reading before: 1.0 is one busy core.
        memory: resident memory in bytes.
    """

    in_flight: float
    waiting: float
    cpu: float
    memory: float


class _Ring:
    """A ring buffer with one row of numbers for each interval. Rows of idle intervals are cleared lazily."""

    def __init__(self, resolution: Resolution, columns: int, dtype: npt.DTypeLike) -> None:
        self._resolution = resolution
        self._rows = np.zeros((resolution.size, columns), dtype)
        self._newest = 0

    def row(self, second: int) -> npt.NDArray[Any]:
        """Return the row of the interval of `second` for writing. `second` must not decrease."""
        self._advance(second)
        return self._rows[self._newest % len(self._rows)]

    def recent(self, second: int) -> npt.NDArray[Any]:
        """Return a copy of all rows up to the interval of `second`, the oldest first."""
        self._advance(second)
        return np.roll(self._rows, -1 - self._newest % len(self._rows), axis=0)

    def _advance(self, second: int) -> None:
        current = second // self._resolution.interval
        for interval in range(max(self._newest + 1, current - len(self._rows) + 1), current + 1):
            self._rows[interval % len(self._rows)] = 0
        self._newest = max(self._newest, current)


_SLOWEST = 4


"""The column of the maximum latency, after four columns of sums."""


class RequestHistory:
    """The requests of one model, or of all models. Not thread-safe: the owner locks each call.

    Seconds count from the start of the history. Each second is written into the rings after it has ended, so that a
    request costs little more than an addition. All rings of a history take about 240 kB.
    """

    def __init__(self) -> None:
        columns = BUCKETS + len(BATCH_SIZES)
        self._sums = {resolution: _Ring(resolution, _SLOWEST + 1, np.int64) for resolution in Resolution}
        self._tallies = {resolution: _Ring(resolution, columns, np.uint32) for resolution in Resolution}
        self._second = 0
        self._begin()

    def add(self, second: int, failed: bool, nanoseconds: int, items: int) -> None:
        """Count a request that finished in `second`."""
        if second != self._second:
            self._close(second)
        self._requests += 1
        if failed:
            self._failures += 1
            return
        self._latency += nanoseconds
        self._items += items
        if nanoseconds > self._slowest:
            self._slowest = nanoseconds
        self._pending.append(bucket_of(nanoseconds))
        self._pending.append(BUCKETS + min(max(items - 1, 0).bit_length(), len(BATCH_SIZES) - 1))

    def window(self, resolution: Resolution, second: int) -> HistoryWindow:
        """Return the statistics of the seconds before `second`."""
        if second != self._second:
            self._close(second)
        last = max(second - 1, 0)
        sums = self._sums[resolution].recent(last).astype(np.int64)
        tallies = self._tallies[resolution].recent(last).astype(np.uint64)
        requests, failures, latency, items, slowest = sums.T
        return HistoryWindow(
            covered=_covered(resolution, last),
            requests=requests,
            failures=failures,
            latency=latency,
            slowest=slowest,
            items=items,
            latencies=tallies[:, :BUCKETS],
            batches=tallies[:, BUCKETS:],
        )

    def _begin(self) -> None:
        self._requests = self._failures = self._latency = self._items = self._slowest = 0
        self._pending: list[int] = []

    def _close(self, second: int) -> None:
        """Write the finished second into the rings, and start another."""
        if self._requests:
            sums = (self._requests, self._failures, self._latency, self._items)
            tally = np.bincount(self._pending, minlength=BUCKETS + len(BATCH_SIZES)).astype(np.uint32)
            for resolution in Resolution:
                row = self._sums[resolution].row(self._second)
                row[:_SLOWEST] += sums
                row[_SLOWEST] = max(row[_SLOWEST], self._slowest)
                self._tallies[resolution].row(self._second)[:] += tally
            self._begin()
        self._second = second


class Gauges:
    """Readings once a second; longer intervals have their mean. Not thread-safe."""

    def __init__(self) -> None:
        self._rings = {resolution: _Ring(resolution, 5, np.float64) for resolution in Resolution}

    def add(self, second: int, readings: Readings) -> None:
        """Add the readings of `second`."""
        values = (readings.in_flight, readings.waiting, readings.cpu, readings.memory, 1)
        for ring in self._rings.values():
            row = ring.row(second)
            row += values

    def window(self, resolution: Resolution, second: int) -> Mapping[str, npt.NDArray[np.float64]]:
        """Return, by field of `Readings`, one value for each interval before `second`; NaN without readings."""
        rows = self._rings[resolution].recent(max(second - 1, 0)).astype(np.float64)
        reading_counts = np.where(rows[:, 4:] > 0, rows[:, 4:], np.nan)
        return dict(zip(Readings.__struct_fields__, (rows[:, :4] / reading_counts).T, strict=True))


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


def _covered(resolution: Resolution, last: int) -> npt.NDArray[np.int64]:
    """Return the seconds from 0 to `last` in each interval up to that of `last`."""
    intervals = last // resolution.interval - np.arange(resolution.size - 1, -1, -1)
    ends = np.minimum((intervals + 1) * resolution.interval, last + 1)
    return np.where(intervals >= 0, ends - intervals * resolution.interval, 0)
