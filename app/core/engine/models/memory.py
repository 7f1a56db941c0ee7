"""Measure resident memory: of a process, and what loading one model adds to it."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_PAGE = os.sysconf("SC_PAGE_SIZE")

_TURN_SECONDS = 1.0
"""Small models load one after another and are measured; those that wait longer load in parallel, unmeasured."""


def resident_bytes(process: int | None = None) -> int:
    """Return the resident memory of a process, by its id, or of this one in bytes.

    Raise ProcessLookupError if `process` has ended.
    """
    try:
        return int(Path(f"/proc/{process or 'self'}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        raise ProcessLookupError from None


class LoadMeter:
    """Measure what loading adds to the `resident` memory in bytes. A load waits `seconds` until no other one runs."""

    def __init__(self, resident: Callable[[], int] = resident_bytes, seconds: float = _TURN_SECONDS) -> None:
        self._resident = resident
        self._seconds = seconds
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._running = 0
        # Whether the load that started last was alone then. If it was not that of a thread, it overlapped that one.
        self._is_alone = True

    def measure(self, load: Callable[[], T]) -> tuple[T, int | None]:
        """Return the result of `load` and the bytes that it added; None if other loads ran, or it added nothing."""
        has_turn = self._turn.acquire(timeout=self._seconds)
        with self._lock:
            self._is_alone = not self._running
            self._running += 1
        try:
            before = self._resident()
            result = load()
            added = self._resident() - before
        finally:
            with self._lock:
                self._running -= 1
                is_alone = self._is_alone
            if has_turn:
                self._turn.release()
        return result, added if is_alone and added > 0 else None
