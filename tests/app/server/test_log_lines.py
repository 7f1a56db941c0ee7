"""Log lines that go out several at a time, in order, and hold up nobody."""

import io
import logging
import os
import threading

from app.server import log_lines
from app.server.log_lines import Handed, LogLines


class Paper(io.BytesIO):
    """Counts how often it is written to, and says when."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.written = threading.Event()

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self.pieces.append(bytes(data))
        self.written.set()
        return super().write(data)


class Torn(io.BytesIO):
    """Nobody reads it any more."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        raise BrokenPipeError


def test_lines_are_written_together_and_in_order() -> None:
    paper = Paper()
    lines = LogLines(paper, delay=60)
    for index in range(5):
        lines.info(b"%d" % index)
    lines.flush()
    assert paper.pieces == [b"0\n1\n2\n3\n4\n"]


def test_a_line_waits_for_a_moment_only() -> None:
    paper = Paper()
    lines = LogLines(paper, delay=0.001)
    for name in (b"a", b"b"):
        paper.written.clear()
        lines.info(name)
        assert paper.written.wait(60)
    assert paper.getvalue() == b"a\nb\n"


def test_a_warning_goes_out_at_once_behind_what_came_before() -> None:
    paper = Paper()
    lines = LogLines(paper, delay=60)
    lines.info(b"first")
    lines.warning(b"second")
    assert paper.written.wait(60)
    assert b"".join(paper.pieces) == b"first\nsecond\n"


def test_the_end_of_logging_writes_what_waits() -> None:
    paper = Paper()
    lines = LogLines(paper, delay=60)
    lines.info(b"last words")
    logging.shutdown()
    assert paper.getvalue() == b"last words\n"


def test_a_reader_who_is_gone_keeps_nobody_from_going_on() -> None:
    lines = LogLines(Torn(), delay=60)
    lines.info(b"to nobody")
    lines.warning(b"to nobody either")
    lines.flush()


def test_a_reader_who_does_not_read_holds_up_nobody() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as pipe:
        lines = LogLines(pipe, delay=0, patience=0.05)
        for _ in range(8):
            lines.warning(b"x" * 65536)
        lines.flush()
        with os.fdopen(reading, "rb") as reader:
            assert reader.read(8 * 65537).count(b"\n") == 8, "nothing is lost when it does in the end"


def test_a_pipe_that_does_not_block_gets_all_of_it() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(writing, "wb", buffering=0) as pipe, os.fdopen(reading, "rb") as reader:
        lines = LogLines(pipe, delay=0.001, patience=60)
        lines.warning(b"y" * 300_000)
        assert len(reader.read(300_001)) == 300_001


def test_lines_of_the_standard_library_go_the_same_way() -> None:
    paper = Paper()
    lines = LogLines(paper, delay=60)
    logger = logging.Logger("apart")
    logger.addHandler(Handed(lines))
    logger.info("first")
    logger.error("caf\udce9")
    assert paper.written.wait(60)
    assert b"".join(paper.pieces) == b"first\ncaf\\udce9\n"


def test_lines_that_nobody_takes_are_counted_and_dropped() -> None:
    paper = Paper()
    lines = LogLines(paper, delay=60)
    for _ in range(log_lines.MOST + 3):
        lines.info(b"x")
    lines.flush()
    assert paper.getvalue().count(b"x\n") == log_lines.MOST
    assert paper.getvalue().endswith(b'{"event":"log lines lost","lines":3,"level":"warning"}\n')


def test_many_threads_lose_nothing() -> None:
    paper = Paper()
    lines = LogLines(paper, delay=0)

    def write(name: int) -> None:
        for index in range(200):
            lines.info(b"%d-%d" % (name, index))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    lines.flush()
    found = paper.getvalue().splitlines()
    assert len(found) == 800
    for name in range(4):
        own = [line for line in found if line.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, index) for index in range(200)]
