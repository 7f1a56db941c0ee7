import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.server_process import ROOT

_LINES = 6_000
"""Lines of twenty bytes: far more than a pipe holds."""
_WRITER = f"""
import ctypes, os, sys
from app.core.server.logs.stdio import log_file, set_nonblocking, open_missing_fds

open_missing_fds()
lines = log_file()
assert os.get_blocking(lines.fileno()), "the log file blocks"
set_nonblocking()
library = ctypes.CDLL(None)
for number in range({_LINES}):
    library.dprintf(2, b"of a library %06d\\n", number)
    print(f"of a model   {{number:06}}")
    print(f"of a model   {{number:06}}", file=sys.stderr)
sys.stdout.flush()
"""


def run_writer(stdout: int, stderr: int, code: str = _WRITER) -> None:
    """Run a program that writes to these descriptors while no process reads them."""
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=stdout, stderr=stderr, timeout=60, check=False
    )
    assert completed.returncode == 0


def read_available(pipe: int) -> bytes:
    os.set_blocking(pipe, False)
    content = b""
    while data := os.read(pipe, 1 << 20):
        content += data
    return content


def test_full_pipes_do_not_block_the_writer() -> None:
    (read_stdout, stdout), (read_stderr, stderr) = os.pipe(), os.pipe()
    run_writer(stdout, stderr)
    assert [os.get_blocking(descriptor) for descriptor in (stdout, stderr)] == [True, True], (
        "other processes that share the pipe see no change"
    )
    os.close(stdout)
    os.close(stderr)
    out, error = read_available(read_stdout), read_available(read_stderr)
    os.close(read_stdout)
    os.close(read_stderr)
    assert out.startswith(b"of a model   000000\nof a model   000001\n")
    assert error.startswith(b"of a library 000000\nof a model   000000\nof a library 000001\n")
    assert len(out) < 20 * _LINES
    assert len(error) < 40 * _LINES


def test_file_gets_every_line(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        run_writer(file.fileno(), file.fileno())
    assert (tmp_path / "log").read_bytes().count(b"\n") == 3 * _LINES


def test_broken_pipe_is_ignored() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    run_writer(write_end, write_end, "from app.core.server.logs.stdio import set_nonblocking; set_nonblocking()")
    os.close(write_end)


_PRINTING = """
import ctypes, sys, threading
from app.core.server.logs.stdio import forward_native_messages
library = ctypes.CDLL(None)
def print_in_c(text):
    library.fputs(text, ctypes.c_void_p.in_dll(library, "stderr"))
"""


def test_native_messages_are_forwarded_line_by_line_until_shutdown() -> None:
    code = """
import logging
forward_native_messages(lambda line: print(repr(line)))
for chunk in (b"one ", b"line\\nand a", b"nother \\xff\\n\\n", b"last\\n"):
    print_in_c(chunk)
logging.shutdown()
"""
    command = [sys.executable, "-c", _PRINTING + code]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines() == ["'one line'", r"'and another \\xff'", "'last'"]
    assert completed.stderr == ""


def test_native_messages_do_not_block_if_the_forwarder_hangs() -> None:
    code = """
forward_native_messages(lambda line: threading.Event().wait())
for _ in range(5000):
    print_in_c(b"of a library, as long as a line usually is\\n")
print("done")
"""
    command = [sys.executable, "-c", _PRINTING + code]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout == "done\n"


@pytest.mark.parametrize(
    ("crash", "expected"),
    [
        ('raise ValueError("uncaught")', "ValueError: uncaught"),
        ('ctypes.pythonapi.Py_FatalError(b"fatal")', "Fatal Python error: fatal"),
        ("import faulthandler; faulthandler.enable(2); ctypes.string_at(0)", "string_at"),
        ("library.free(ctypes.c_void_p(id(library) + 8))", "invalid pointer"),
    ],
)
def test_crash_messages_bypass_the_forwarded_stream(crash: str, expected: str) -> None:
    code = f"{_PRINTING}forward_native_messages(lambda line: None)\n{crash}\n"
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode != 0
    assert expected in completed.stderr
