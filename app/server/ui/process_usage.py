"""Measure the processor time of this process, without its children, and the memory of the machine."""

import os
import time
from collections.abc import Callable
from pathlib import Path

_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class CpuMeter:
    """Measure the mean processor use between two readings.

    Args:
        clock: return wall-clock time in seconds.
        used: return the processor time of the process in seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._used = used
        self._before = (clock(), used())

    def read(self) -> float:
        """Return processor time per second since the last reading: 1.0 is one busy core."""
        clock, used = self._clock(), self._used()
        (clock_before, used_before), self._before = self._before, (clock, used)
        return max(used - used_before, 0.0) / max(clock - clock_before, 1e-3)


def machine_memory(limit_file: Path = _MEMORY_LIMIT) -> int:
    """Return the bytes of RAM of the machine, or the limit of the control group (cgroup v2, memory.max)."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    try:
        return min(total, int(limit_file.read_text()))
    except (OSError, ValueError):
        return total
