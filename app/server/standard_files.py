"""Standard input, output and error of a server, which are not always there, or are not always read."""

import io
import os
import stat
import sys
from typing import Any, BinaryIO, cast

__all__ = ("log_file", "never_wait", "occupy")


def occupy() -> None:
    """Open whatever of standard input, output and error is closed, on nothing.

    Otherwise the next file or connection takes their place, and gets what libraries write to standard error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if cast("Any", sys.stderr) is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  a descriptor, open as long as the process is


def log_file() -> BinaryIO:
    """Standard error for one who can wait, and without a buffer, whose lock somebody might hold when the end comes."""
    number = _number(sys.stderr)
    return sys.stderr.buffer if number is None else open(os.dup(number), "wb", buffering=0, closefd=False)


def never_wait() -> None:
    """Have nobody wait for whoever reads standard output and error through pipes: what these do not take is lost.

    libjpeg says something of each damaged picture, ONNX Runtime of each call that fails, and models print; a full pipe
    that nobody reads would stop one worker after the other. Where there is no /proc, all stays as it is.
    """
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: Any = getattr(sys, name)
        ours = isinstance(stream, io.TextIOWrapper) and _number(stream) == number
        if _opened_anew(number) and ours:
            setattr(sys, name, _losing(stream, number))


def _number(stream: Any) -> int | None:
    """Of the file that is written to, None where it is none of the system's."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _opened_anew(number: int) -> bool:
    """Put the same pipe in its own place, as one that does not block; those who share it with us see no change."""
    try:
        if not stat.S_ISFIFO(os.fstat(number).st_mode):
            return False
        anew = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        # Nobody reads it any more, and so nobody waits; or it is somebody else's.
        return False
    os.dup2(anew, number)
    os.close(anew)
    return True


class _Losing(io.FileIO):
    def write(self, data: Any, /) -> int:
        written = cast("int | None", super().write(data))
        return memoryview(data).nbytes if written is None else written


def _losing(stream: Any, number: int) -> io.TextIOWrapper:
    """The same, to which a model can print without an error while the pipe is full."""
    stream.flush()
    file = _Losing(number, "w", closefd=False)
    unbuffered = isinstance(stream.buffer, io.RawIOBase)  # as `python -u` has it
    return io.TextIOWrapper(
        cast("BinaryIO", file) if unbuffered else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
