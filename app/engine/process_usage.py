"""How much of the machine this process uses, its children not counted."""

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ("CpuMeter", "machine_memory", "resident_bytes")

_STATM = Path("/proc/self/statm")
_GRANTED = Path("/sys/fs/cgroup/memory.max")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class CpuMeter:
    """Processor time by wall-clock time, between one reading and the next.

    Args:
        clock: seconds, from any beginning.
        used: seconds of processor time that the process has used so far.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._used = used
        self._before = (clock(), used())

    def read(self) -> float:
        """Cores' worth of processor time since the reading before: 1.0 is one core, all the time."""
        clock, used = self._clock(), self._used()
        (clock_before, used_before), self._before = self._before, (clock, used)
        return max(used - used_before, 0.0) / max(clock - clock_before, 1e-3)


def resident_bytes() -> int:
    """Memory that this process has in RAM. Where there is no proc(5), the most that it ever had."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine_memory(granted: Path = _GRANTED) -> int:
    """Bytes of RAM that the machine has, or fewer where a control group grants less (cgroup v2, memory.max)."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    try:
        return min(total, int(granted.read_text()))
    except (OSError, ValueError):
        return total
