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

BUCKETS = math.ceil(math.log(_LONGEST / _SHORTEST) / _GROWTH) + 1
"""Number of buckets. Bucket 0 holds latencies of at most 10 microseconds."""

# The value in each bucket with the smallest relative error, in nanoseconds.
_MIDDLES = _SHORTEST * np.exp(_GROWTH * np.arange(BUCKETS)) * (1 - RELATIVE_ERROR)
_MIDDLES[0] = _SHORTEST

Counts = npt.NDArray[np.unsignedinteger]


class Resolution(Enum):
    """A time interval: its length in seconds, and the number of intervals in a ring."""

    SECONDS = (1, 60)
    MINUTES = (60, 60)
    HOURS = (3600, 24)
    DAYS = (86400, 30)

    def __init__(self, interval: int, size: int) -> None:
        self.interval = interval
        self.size = size


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
    latencies: Counts
    batches: Counts


_REQUEST_COLUMNS: Any = [
    *((name, np.int64) for name in ("requests", "failures", "latency", "slowest", "items")),
    ("latencies", np.uint32, BUCKETS),
    ("batches", np.uint32, len(BATCH_SIZES)),
]


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
    """A ring buffer with one row for each interval. Rows of idle intervals are cleared lazily."""

    def __init__(self, resolution: Resolution, columns: Any) -> None:
        self._resolution = resolution
        self._rows: npt.NDArray[Any] = np.zeros(resolution.size, columns)
        self._newest = 0

    def row(self, second: int) -> Any:
        """Return the row of the interval of `second` for writing. `second` must not decrease."""
        self._advance(second)
        return self._rows[self._newest % len(self._rows)]

    def recent(self, second: int) -> npt.NDArray[Any]:
        """Return a copy of all rows up to the interval of `second`, the oldest first."""
        self._advance(second)
        return np.roll(self._rows, -1 - self._newest % len(self._rows))

    def _advance(self, second: int) -> None:
        current = second // self._resolution.interval
        for interval in range(max(self._newest + 1, current - len(self._rows) + 1), current + 1):
            self._rows[interval % len(self._rows)] = np.zeros((), self._rows.dtype)
        self._newest = max(self._newest, current)


class RequestHistory:
    """The requests of one model, or of all models. Not thread-safe: the owner locks each call.

    Seconds count from the start of the history. Each second is written into the rings after it has ended, so that a
    request costs little more than an addition. All rings of a history take about 240 kB.
    """

    def __init__(self) -> None:
        self._rings = {resolution: _Ring(resolution, _REQUEST_COLUMNS) for resolution in Resolution}
        self._second = self._failures = 0
        self._succeeded: list[tuple[int, int]] = []

    def add(self, second: int, failed: bool, nanoseconds: int, items: int) -> None:
        if second != self._second:
            self._close(second)
        if failed:
            self._failures += 1
        else:
            self._succeeded.append((nanoseconds, items))

    def window(self, resolution: Resolution, second: int) -> HistoryWindow:
        """Return the statistics of the seconds before `second`."""
        if second != self._second:
            self._close(second)
        last = max(second - 1, 0)
        rows = self._rings[resolution].recent(last)
        fields = {name: rows[name] for name, *_ in _REQUEST_COLUMNS}
        return HistoryWindow(covered=_covered(resolution, last), **fields)

    def _close(self, second: int) -> None:
        """Write the finished second into the rings, and start another."""
        if self._failures or self._succeeded:
            latencies, items = np.array(self._succeeded, np.int64).reshape(-1, 2).T
            sizes = np.ceil(np.log2(np.maximum(items, 1))).astype(np.int64)
            latency_counts = np.bincount(bucket_of(latencies), minlength=BUCKETS).astype(np.uint32)
            batch_counts = np.bincount(np.minimum(sizes, len(BATCH_SIZES) - 1), minlength=len(BATCH_SIZES))
            for ring in self._rings.values():
                row = ring.row(self._second)
                row["requests"] += self._failures + len(items)
                row["failures"] += self._failures
                row["latency"] += latencies.sum()
                row["slowest"] = max(row["slowest"], latencies.max(initial=0))
                row["items"] += items.sum()
                row["latencies"] += latency_counts
                row["batches"] += batch_counts.astype(np.uint32)
            self._failures, self._succeeded = 0, []
        self._second = second


class Gauges:
    """Readings once a second; longer intervals have their mean. Not thread-safe."""

    def __init__(self) -> None:
        columns = [(name, np.float64) for name in (*Readings.__struct_fields__, "count")]
        self._rings = {resolution: _Ring(resolution, columns) for resolution in Resolution}

    def add(self, second: int, readings: Readings) -> None:
        for ring in self._rings.values():
            row = ring.row(second)
            for name, value in (*msgspec.structs.asdict(readings).items(), ("count", 1)):
                row[name] += value

    def window(self, resolution: Resolution, second: int) -> Mapping[str, npt.NDArray[np.float64]]:
        """Return, by field of `Readings`, one value for each interval before `second`; NaN without readings."""
        rows = self._rings[resolution].recent(max(second - 1, 0))
        counts = np.where(rows["count"] > 0, rows["count"], np.nan)
        return {name: rows[name] / counts for name in Readings.__struct_fields__}


def bucket_of(nanoseconds: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the indexes of the buckets of latencies."""
    return np.ceil(np.log(np.clip(nanoseconds, _SHORTEST, _LONGEST) / _SHORTEST) / _GROWTH).astype(np.int64)


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


def _covered(resolution: Resolution, last: int) -> npt.NDArray[np.int64]:
    """Return the seconds from 0 to `last` in each interval up to that of `last`."""
    intervals = last // resolution.interval - np.arange(resolution.size - 1, -1, -1)
    ends = np.minimum((intervals + 1) * resolution.interval, last + 1)
    return np.where(intervals >= 0, ends - intervals * resolution.interval, 0)
