"""Prepare standard input, output and error of a server, which can be closed or unread."""

import io
import os
import stat
import sys
from typing import Any, BinaryIO, cast


def open_missing_fds() -> None:
    """Open closed standard input, output and error on ``/dev/null``.

    Otherwise the next file or connection gets their descriptor, and receives what libraries write to standard error.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if cast("Any", sys.stderr) is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  open until the process exits


def log_file() -> BinaryIO:
    """Return standard error, unbuffered: another thread could hold the buffer's lock at exit. Writes may block."""
    fd = _fileno(sys.stderr)
    return sys.stderr.buffer if fd is None else open(os.dup(fd), "wb", buffering=0, closefd=False)


def set_nonblocking() -> None:
    """Make pipes at standard output and error non-blocking: data that does not fit is lost.

    libjpeg reports each damaged image, ONNX Runtime each failed call, and models print. A full pipe without a reader
    would block one worker after the other. Without /proc nothing changes.
    """
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream: Any = getattr(sys, name)
        is_standard = isinstance(stream, io.TextIOWrapper) and _fileno(stream) == fd
        if _reopen_nonblocking(fd) and is_standard:
            setattr(sys, name, _lossy_stream(stream, fd))


def _fileno(stream: Any) -> int | None:
    """Return the file descriptor of a stream; None if it has none."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _reopen_nonblocking(fd: int) -> bool:
    """Reopen a pipe as non-blocking under its own descriptor; other processes that share it are not affected."""
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        reopened = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        # The pipe has no reader, so no write blocks; or another user owns it.
        return False
    os.dup2(reopened, fd)
    os.close(reopened)
    return True


class _LossyFile(io.FileIO):
    def write(self, data: Any, /) -> int:
        written_count = cast("int | None", super().write(data))
        return memoryview(data).nbytes if written_count is None else written_count


def _lossy_stream(stream: Any, fd: int) -> io.TextIOWrapper:
    """Return a stream that drops data without an error while the pipe is full, so that models can print."""
    stream.flush()
    file = _LossyFile(fd, "w", closefd=False)
    unbuffered = isinstance(stream.buffer, io.RawIOBase)  # as `python -u` has it
    return io.TextIOWrapper(
        cast("BinaryIO", file) if unbuffered else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
