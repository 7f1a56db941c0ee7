import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_process import ROOT

_LINES = 6_000
"""Of twenty bytes each: far more than a pipe holds."""
_WRITING = f"""
import ctypes, os, sys
from app.server.standard_files import log_file, never_wait, occupy

occupy()
lines = log_file()
assert os.get_blocking(lines.fileno()), "whoever writes the log can wait"
never_wait()
library = ctypes.CDLL(None)
for number in range({_LINES}):
    library.dprintf(2, b"of a library %06d\\n", number)
    print(f"of a model   {{number:06}}")
    print(f"of a model   {{number:06}}", file=sys.stderr)
sys.stdout.flush()
"""


def written_to(stdout: int, stderr: int, code: str = _WRITING) -> None:
    """Run a program that writes there until it ends, while nobody reads."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=stdout, stderr=stderr, timeout=60, check=False)
    assert done.returncode == 0


def all_in(pipe: int) -> bytes:
    os.set_blocking(pipe, False)
    found = b""
    while more := os.read(pipe, 1 << 20):
        found += more
    return found


def test_nobody_waits_for_a_pipe_that_is_full() -> None:
    (reading_out, stdout), (reading_error, stderr) = os.pipe(), os.pipe()
    written_to(stdout, stderr)
    assert [os.get_blocking(each) for each in (stdout, stderr)] == [True, True], "those who share it see no change"
    os.close(stdout)
    os.close(stderr)
    out, error = all_in(reading_out), all_in(reading_error)
    os.close(reading_out)
    os.close(reading_error)
    assert out.startswith(b"of a model   000000\nof a model   000001\n")
    assert error.startswith(b"of a library 000000\nof a model   000000\nof a library 000001\n")
    assert len(out) < 20 * _LINES
    assert len(error) < 40 * _LINES


def test_a_file_gets_everything(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        written_to(file.fileno(), file.fileno())
    assert (tmp_path / "log").read_bytes().count(b"\n") == 3 * _LINES


def test_a_pipe_that_nobody_holds_any_more_is_left_as_it_is() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    written_to(writing, writing, "from app.server.standard_files import never_wait; never_wait()")
    os.close(writing)


_PRINTING = """
import ctypes, sys, threading
from app.server.standard_files import forward_native_messages
library = ctypes.CDLL(None)
def print_in_c(text):
    library.fputs(text, ctypes.c_void_p.in_dll(library, "stderr"))
"""


def test_native_messages_are_forwarded_by_lines_until_the_end() -> None:
    code = """
import logging
forward_native_messages(lambda line: print(repr(line)))
for piece in (b"one ", b"line\\nand a", b"nother \\xff\\n\\n", b"last\\n"):
    print_in_c(piece)
logging.shutdown()
"""
    command = [sys.executable, "-c", _PRINTING + code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["'one line'", r"'and another \\xff'", "'last'"]
    assert done.stderr == ""


def test_native_messages_that_no_thread_reads_block_nothing() -> None:
    code = """
forward_native_messages(lambda line: threading.Event().wait())
for _ in range(5000):
    print_in_c(b"of a library, as long as a line usually is\\n")
print("done")
"""
    command = [sys.executable, "-c", _PRINTING + code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "done\n"


@pytest.mark.parametrize(
    ("crash", "words"),
    [
        ('raise ValueError("uncaught")', "ValueError: uncaught"),
        ('ctypes.pythonapi.Py_FatalError(b"fatal")', "Fatal Python error: fatal"),
        ("import faulthandler; faulthandler.enable(2); ctypes.string_at(0)", "string_at"),
        ("library.free(ctypes.c_void_p(id(library) + 8))", "invalid pointer"),
    ],
)
def test_crash_messages_go_past_the_forwarded_stream(crash: str, words: str) -> None:
    code = f"{_PRINTING}forward_native_messages(lambda line: None)\n{crash}\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert words in done.stderr
