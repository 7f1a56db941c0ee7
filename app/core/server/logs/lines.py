"""Write log lines in batches.

A write for each line would cost a system call and a thread switch for each request. Only the writer thread waits for
the reader of the log: a full pipe must not block workers or the event loop.
"""

import logging
import threading
import time
from contextlib import suppress
from typing import BinaryIO, cast

_DELAY = 0.02
_FLUSH_TIMEOUT = 1.0
MAX_QUEUED_LINES = 10_000
"""Maximum number of queued lines: a blocked log reader must not fill the memory or delay responses."""


class LogLines:
    """Log lines of bytes for structlog. The order is kept; warnings and errors are written without delay.

    Lines are lost if the file, which is unbuffered, cannot be written. Others wait for `delay` seconds for further
    ones. `flush` waits for the reader for `flush_timeout` seconds.
    """

    def __init__(self, file: BinaryIO, delay: float = _DELAY, flush_timeout: float = _FLUSH_TIMEOUT) -> None:
        self._file = file
        self._delay = delay
        self._flush_timeout = flush_timeout
        self._queued: list[bytes] = []
        self._lost = 0
        self._is_urgent = self._is_writing = self._is_started = False
        self._changed = threading.Condition()

    def info(self, line: bytes) -> None:
        """Queue a line that may be delayed."""
        with self._changed:
            if len(self._queued) >= MAX_QUEUED_LINES:
                self._lost += 1
                return
            self._queued.append(line)
            if len(self._queued) == 1 or not self._is_started:
                self._wake_writer()

    msg = debug = info

    def warning(self, line: bytes) -> None:
        """Queue a line and write it without delay."""
        self.info(line)
        with self._changed:
            self._is_urgent = True
            self._wake_writer()

    error = critical = exception = fatal = failure = err = warn = warning

    def flush(self) -> None:
        """Write all queued lines and wait for that, at most for the flush timeout."""
        with self._changed:
            self._is_urgent = True
            self._wake_writer()
            self._changed.wait_for(lambda: not (self._queued or self._is_writing), self._flush_timeout)

    def _wake_writer(self) -> None:
        """Start the writer thread if needed, and wake it. Call this with the lock held."""
        if not self._is_started:
            # If the system cannot start a thread now, the next line tries again.
            with suppress(RuntimeError):
                threading.Thread(target=self._write_batches, name="log", daemon=True).start()
                self._is_started = True
        self._changed.notify_all()

    def _write_batches(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queued)
                self._changed.wait_for(lambda: self._is_urgent, self._delay)
                lines, self._queued = self._queued, []
                lost, self._lost = self._lost, 0
                self._is_urgent, self._is_writing = False, True
            if lost:
                lines.append(b'{"event":"log lines lost","lines":%d,"level":"warning"}' % lost)
            self._write(memoryview(b"\n".join([*lines, b""])))
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _write(self, lines: memoryview) -> None:
        try:
            while lines:
                # The result is None if the pipe is non-blocking and full.
                written_count = cast("int | None", self._file.write(lines))
                if written_count is None:
                    time.sleep(self._delay)
                lines = lines[written_count or 0 :]
            self._file.flush()
        except (OSError, ValueError):
            # The log reader has closed the pipe; the server continues without a log.
            return


class LogLinesHandler(logging.Handler):
    """Forward lines of the standard library's loggers."""

    def __init__(self, lines: LogLines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record).encode(errors="backslashreplace")
        (self._lines.info if record.levelno < logging.WARNING else self._lines.warning)(line)

    def flush(self) -> None:
        """Write the queued lines. `logging.shutdown` calls this, at the exit and before a forced one."""
        self._lines.flush()
