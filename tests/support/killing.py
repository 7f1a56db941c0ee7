"""Kill a process in the middle of its work."""

import os
import signal
from collections.abc import Callable
from typing import NoReturn


def run_until_killed(work: Callable[[int], NoReturn], min_acknowledged: int) -> str:
    """Run `work` in a forked child, kill it after some lines, and return all lines that it wrote.

    Args:
        work: writes a line to the file descriptor for each acknowledgement, without an end.
        min_acknowledged: lines to wait for.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        work(write_end)
    os.close(write_end)
    acknowledged = b""
    while acknowledged.count(b"\n") < min_acknowledged:
        data = os.read(read_end, 4096)
        assert data, "the child ended by itself"
        acknowledged += data
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while data := os.read(read_end, 65536):
        acknowledged += data
    os.close(read_end)
    return acknowledged.decode()
