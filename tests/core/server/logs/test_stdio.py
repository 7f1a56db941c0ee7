import os
import subprocess
import sys
from pathlib import Path

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
