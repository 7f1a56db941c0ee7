"""Log lines are written in order, in batches and without blocking."""

import io
import logging
import os
import threading
from weakref import ref

from app.core.server.logs import lines as log_lines
from app.core.server.logs.lines import LogLines, LogLinesHandler


class CountingFile(io.BytesIO):
    """Record every write and signal it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.written = threading.Event()

    def write(self, data: bytes, /) -> int:
        self.writes.append(bytes(data))
        self.written.set()
        return super().write(data)


class BrokenPipeFile(io.BytesIO):
    """Fail every write, like a pipe without a reader."""

    attempts = 0

    def write(self, data: bytes, /) -> int:
        self.attempts += 1
        raise BrokenPipeError


def open_lines(delay: float = 60) -> tuple[CountingFile, LogLines]:
    return (file := CountingFile()), LogLines(file, delay)


def test_lines_are_written_together_and_in_order() -> None:
    file, lines = open_lines()
    for index in range(5):
        lines.info(b"%d" % index)
    lines.flush()
    assert file.writes == [b"0\n1\n2\n3\n4\n"]


def test_info_line_is_written_after_the_delay() -> None:
    file, lines = open_lines(0.001)
    for name in (b"a", b"b"):
        file.written.clear()
        lines.info(name)
        assert file.written.wait(60)
    assert file.getvalue() == b"a\nb\n"


def test_shutdown_of_logging_writes_pending_lines() -> None:
    file, lines = open_lines()
    handler = LogLinesHandler(lines)
    lines.info(b"pending")
    logging.shutdown([ref(handler)])
    assert file.getvalue() == b"pending\n"


def test_broken_pipe_raises_nothing() -> None:
    file = BrokenPipeFile()
    lines = LogLines(file, delay=60)
    lines.info(b"lost")
    lines.warning(b"also lost")
    lines.flush()
    assert file.attempts > 0


def test_slow_reader_blocks_only_for_the_timeout_and_gets_every_line() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb", buffering=0) as pipe:
        lines = LogLines(pipe, delay=0, flush_timeout=0.05)
        for _ in range(8):
            lines.warning(b"x" * 65536)
        lines.flush()
        with os.fdopen(read_end, "rb") as reader:
            assert reader.read(8 * 65537).count(b"\n") == 8, "every line arrives once it is read"


def test_non_blocking_pipe_gets_complete_lines() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with os.fdopen(write_end, "wb", buffering=0) as pipe, os.fdopen(read_end, "rb") as reader:
        lines = LogLines(pipe, delay=0.001, flush_timeout=60)
        lines.warning(b"y" * 300_000)
        assert len(reader.read(300_001)) == 300_001


def test_standard_library_records_are_written_as_lines() -> None:
    file, lines = open_lines()
    logger = logging.Logger("apart")
    logger.addHandler(LogLinesHandler(lines))
    logger.info("first")
    logger.error("caf\udce9")
    assert file.written.wait(60)
    assert b"".join(file.writes) == b"first\ncaf\\udce9\n"


def test_lines_over_the_limit_are_dropped_and_counted() -> None:
    file, lines = open_lines()
    for _ in range(log_lines.MAX_QUEUED_LINES + 3):
        lines.info(b"x")
    lines.flush()
    assert file.getvalue().count(b"x\n") == log_lines.MAX_QUEUED_LINES
    assert file.getvalue().endswith(b'{"event":"log lines lost","lines":3,"level":"warning"}\n')


def test_lines_of_many_threads_are_all_written_in_order() -> None:
    file, lines = open_lines(0)

    def write(name: int) -> None:
        for index in range(200):
            lines.info(b"%d-%d" % (name, index))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.flush()
    written = file.getvalue().splitlines()
    assert len(written) == 800
    for name in range(4):
        lines_of_thread = [line for line in written if line.startswith(b"%d-" % name)]
        assert lines_of_thread == [b"%d-%d" % (name, index) for index in range(200)]
