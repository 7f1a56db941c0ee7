import os
import subprocess
import sys
from pathlib import Path

from tests.server_process import ROOT

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
