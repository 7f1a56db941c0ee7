"""What happened lately, in rings of seconds, minutes, hours and days."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from app.engine.histogram import BUCKETS, bucket_of

__all__ = ("BATCH_SIZES", "Gauges", "History", "Readings", "Resolution", "Window")

BATCH_SIZES = ("1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256", "257+")
"""The groups in which batch sizes are counted: each ends at a power of two."""


class Resolution(Enum):
    """A grain of time: its length in seconds, and how many of them are remembered."""

    SECONDS = (1, 60)
    MINUTES = (60, 60)
    HOURS = (3600, 24)
    DAYS = (86400, 30)

    @property
    def interval(self) -> int:
        """Seconds that one grain lasts."""
        return self.value[0]

    @property
    def size(self) -> int:
        """How many grains are remembered."""
        return self.value[1]


class Window(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The last grains of one resolution, the oldest first; the last one may still be going on.

    Attributes:
        covered: seconds of each grain that lie in the life of the history, 0 before its start. Shape ``(size,)``.
        requests: that came to their end.
        failures: those of them that were not answered.
        latency: nanoseconds that the answered ones took altogether.
        slowest: nanoseconds that the slowest answered one took.
        items: images or texts in the answered ones.
        latencies: of the answered ones, by bucket of `app.engine.histogram`. Shape ``(size, BUCKETS)``.
        batches: the answered ones by group of `BATCH_SIZES`. Shape ``(size, len(BATCH_SIZES))``.
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
    """What a server measures at a moment.

    Attributes:
        in_flight: requests in hand, those that wait included.
        waiting: those of them that wait for a worker.
        cpu: cores' worth of processor time used since the reading before: 1.0 is one core, all the time.
        memory: resident bytes.
    """

    in_flight: float
    waiting: float
    cpu: float
    memory: float


class _Ring:
    """Rows of numbers, one for each grain. Grains in which nothing happens cost nothing until the next one."""

    def __init__(self, resolution: Resolution, columns: int, dtype: npt.DTypeLike) -> None:
        self._resolution = resolution
        self._rows = np.zeros((resolution.size, columns), dtype)
        self._newest = 0

    def row(self, second: int) -> npt.NDArray[Any]:
        """The row, to be altered, of the grain that `second` lies in, which is none before the newest yet."""
        self._advance(second)
        return self._rows[self._newest % len(self._rows)]

    def recent(self, second: int) -> npt.NDArray[Any]:
        """A copy of all rows, the oldest first, the one that `second` lies in last."""
        self._advance(second)
        return np.roll(self._rows, -1 - self._newest % len(self._rows), axis=0)

    def _advance(self, second: int) -> None:
        wanted = second // self._resolution.interval
        for grain in range(max(self._newest + 1, wanted - len(self._rows) + 1), wanted + 1):
            self._rows[grain % len(self._rows)] = 0
        self._newest = max(self._newest, wanted)


_SLOWEST = 4
"""The column of a maximum, behind those of sums."""


class History:
    """Requests of one model, or of all. Not safe for threads: whoever has it holds a lock around each call.

    Seconds count from the start of the history. A second is written into the rings once it is over, so that a request
    costs little more than an addition. All rings of a history take about 240 kB.
    """

    def __init__(self) -> None:
        self._sums = {each: _Ring(each, _SLOWEST + 1, np.int64) for each in Resolution}
        self._tallies = {each: _Ring(each, BUCKETS + len(BATCH_SIZES), np.uint32) for each in Resolution}
        self._second = 0
        self._begin()

    def add(self, second: int, failed: bool, nanoseconds: int, items: int) -> None:
        """A request came to its end in `second`."""
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

    def window(self, resolution: Resolution, second: int) -> Window:
        """What is known in `second` of the seconds before it."""
        if second != self._second:
            self._close(second)
        last = max(second - 1, 0)
        sums = self._sums[resolution].recent(last).astype(np.int64)
        tallies = self._tallies[resolution].recent(last).astype(np.uint64)
        requests, failures, latency, items, slowest = sums.T
        return Window(
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
        """Write the second that is over into the rings, and begin another."""
        if self._requests:
            sums = (self._requests, self._failures, self._latency, self._items)
            tally = np.bincount(self._pending, minlength=BUCKETS + len(BATCH_SIZES)).astype(np.uint32)
            for each in Resolution:
                row = self._sums[each].row(self._second)
                row[:_SLOWEST] += sums
                row[_SLOWEST] = max(row[_SLOWEST], self._slowest)
                self._tallies[each].row(self._second)[:] += tally
            self._begin()
        self._second = second


class Gauges:
    """Readings once a second; a longer grain has their mean. Not safe for threads."""

    def __init__(self) -> None:
        self._rings = {each: _Ring(each, 5, np.float64) for each in Resolution}

    def add(self, second: int, readings: Readings) -> None:
        """What was measured in `second`."""
        values = (readings.in_flight, readings.waiting, readings.cpu, readings.memory, 1)
        for ring in self._rings.values():
            row = ring.row(second)
            row += values

    def window(self, resolution: Resolution, second: int) -> Mapping[str, npt.NDArray[np.float64]]:
        """By field of `Readings`, what is known in `second`: one value for each grain, NaN where nothing was read."""
        rows = self._rings[resolution].recent(max(second - 1, 0)).astype(np.float64)
        read = np.where(rows[:, 4:] > 0, rows[:, 4:], np.nan)
        return dict(zip(Readings.__struct_fields__, (rows[:, :4] / read).T, strict=True))


def _covered(resolution: Resolution, last: int) -> npt.NDArray[np.int64]:
    """Seconds from 0 to `last` that lie in each of the grains up to the one that `last` lies in."""
    grains = last // resolution.interval - np.arange(resolution.size - 1, -1, -1)
    ends = np.minimum((grains + 1) * resolution.interval, last + 1)
    return np.where(grains >= 0, ends - grains * resolution.interval, 0)
