"""Log lines that are written several at a time.

A line for each request costs a system call and a change of threads for each request. What is collected for some
milliseconds costs that once.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

__all__ = ("MOST", "AtTheEnd", "LogLines")

_DELAY = 0.02
MOST = 10_000
"""Lines that wait at most: a reader that is stuck is to fill no memory, and to keep nobody from answering."""


class LogLines:
    """A logger for structlog, of lines that are bytes. Lines keep their order; warnings and worse wait for nothing.

    Args:
        file: where they go. When it cannot be written to, they are lost.
        delay: seconds that a line may wait for others.
    """

    def __init__(self, file: BinaryIO, delay: float = _DELAY) -> None:
        self._file = file
        self._delay = delay
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: list[bytes] = []
        self._lost = 0
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        # The standard library keeps weak references only.
        self._end = AtTheEnd(self.flush)

    def info(self, line: bytes) -> None:
        """A line that may wait a moment."""
        with self._lock:
            if len(self._waiting) >= MOST:
                self._lost += 1
                return
            self._waiting.append(line)
            if len(self._waiting) > 1:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_in_turns, name="log", daemon=True)
                self._thread.start()
        self._wanted.set()

    msg = debug = info

    def warning(self, line: bytes) -> None:
        """A line that is to be seen at once."""
        self.info(line)
        self.flush()

    error = critical = exception = fatal = failure = err = warn = warning

    def flush(self) -> None:
        """Write what waits."""
        with self._writing:
            with self._lock:
                lines, self._waiting = self._waiting, []
                lost, self._lost = self._lost, 0
            if lost:
                lines.append(b'{"event":"log lines lost","lines":%d,"level":"warning"}' % lost)
            if not lines:
                return
            try:
                self._file.write(b"\n".join([*lines, b""]))
                self._file.flush()
            except (OSError, ValueError):
                # Whoever read the log is gone, which is no reason not to answer.
                return

    def _write_in_turns(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            time.sleep(self._delay)
            self.flush()


class AtTheEnd(logging.Handler):
    """Has `logging.shutdown` call a function: at the interpreter's end, or before it is left in a hurry.

    Args:
        call: the function.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def emit(self, record: Any) -> None:
        """Nothing is written through it."""

    def flush(self) -> None:
        self._call()
