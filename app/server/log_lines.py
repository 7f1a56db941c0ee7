"""Log lines that are written several at a time.

A line for each request costs a system call and a change of threads for each request. What is collected for some
milliseconds costs that once. Nobody but the thread that writes ever waits for whoever reads the log: a full pipe that
nobody reads is to stop no worker, and no event loop.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO, cast

__all__ = ("MOST", "AtTheEnd", "Handed", "LogLines")

_DELAY = 0.02
_PATIENCE = 1.0
MOST = 10_000
"""Lines that wait at most: a reader that is stuck is to fill no memory, and to keep nobody from answering."""


class LogLines:
    """A logger for structlog, of lines that are bytes. Lines keep their order; warnings and worse wait for no others.

    Args:
        file: where they go, better without a buffer. When it cannot be written to, they are lost.
        delay: seconds that a line may wait for others.
        patience: seconds that `flush` waits for whoever reads them.
    """

    def __init__(self, file: BinaryIO, delay: float = _DELAY, patience: float = _PATIENCE) -> None:
        self._file = file
        self._delay = delay
        self._patience = patience
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._lost = 0
        self._wanted = threading.Event()
        self._urgent = threading.Event()
        self._written = threading.Condition(self._lock)
        self._writing = False
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
            if len(self._waiting) > 1 and self._thread is not None:
                return
        self._go()

    msg = debug = info

    def warning(self, line: bytes) -> None:
        """A line that is to be seen at once."""
        self._urgent.set()
        self.info(line)

    error = critical = exception = fatal = failure = err = warn = warning

    def flush(self) -> None:
        """Have what waits written, and wait for that, but not for a reader who does not read."""
        self._urgent.set()
        self._go()
        with self._written:
            self._written.wait_for(lambda: not (self._waiting or self._writing), self._patience)

    def _go(self) -> None:
        """Have the thread write."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._write_in_turns, name="log", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # The system has no thread to give now. The next line asks again.
                    return
                self._thread = thread
        self._wanted.set()

    def _write_in_turns(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            self._urgent.wait(self._delay)
            self._urgent.clear()
            with self._lock:
                lines, self._waiting = self._waiting, []
                lost, self._lost = self._lost, 0
                self._writing = True
            if lost:
                lines.append(b'{"event":"log lines lost","lines":%d,"level":"warning"}' % lost)
            if lines:
                self._write(memoryview(b"\n".join([*lines, b""])))
            with self._written:
                self._writing = False
                self._written.notify_all()

    def _write(self, lines: memoryview) -> None:
        try:
            while lines:
                # None where somebody made the pipe one that does not block, and it is full.
                written = cast("int | None", self._file.write(lines))
                if written is None:
                    time.sleep(self._delay)
                lines = lines[written or 0 :]
            self._file.flush()
        except (OSError, ValueError):
            # Whoever read the log is gone, which is no reason not to answer.
            return


class Handed(logging.Handler):
    """Hands the lines of the standard library's loggers over.

    Args:
        lines: to these.
    """

    def __init__(self, lines: LogLines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record).encode(errors="backslashreplace")
        (self._lines.info if record.levelno < logging.WARNING else self._lines.warning)(line)


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
