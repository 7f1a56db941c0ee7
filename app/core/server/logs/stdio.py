"""Prepare standard input, output and error of a server, which can be closed or unread."""

import ctypes
import io
import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, cast

from app.core.server.logs.lines import CallOnShutdown

_IOLBF = 1
"""Line buffering, in setvbuf(3) of glibc's stdio.h."""
_FILENO_OFFSET = 112
"""Offset of `_fileno` in glibc's `FILE`, on every 64-bit machine (bits/types/struct_FILE.h)."""
_FATAL_PREFIXES = (b"terminate called", b"  what():")
_MAX_LINE = 4096
_DRAIN_SECONDS = 1.0


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


def forward_native_messages(forward: Callable[[str], None]) -> None:
    """Pass each line that C code prints to its `stderr` stream to `forward`, from a thread.

    libpng and libjpeg report damaged images there, and OpenCV has no option to redirect them. Only the stream of the C
    library changes, not descriptor 2: tracebacks, faulthandler and fatal messages of glibc still go straight to that
    descriptor. The pipe never blocks: messages that do not fit are lost.
    """
    library = ctypes.CDLL(None)
    stream = ctypes.c_void_p.in_dll(library, "stderr")
    library.fopencookie.restype = ctypes.c_void_p
    write = ctypes.cast(library.write, ctypes.c_void_p)
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    try:
        _NativeMessages(read_fd, write_fd, forward).start()
    except RuntimeError:
        # The system cannot start a thread now.
        os.close(read_fd)
        os.close(write_fd)
        return
    # write(2) takes the descriptor where a stream function takes its cookie. The stream is never closed because other
    # threads may write to it.
    pipe_stream = library.fopencookie(ctypes.c_void_p(write_fd), b"w", _CookieFunctions(write=write))
    if pipe_stream is None:
        return
    library.setvbuf(ctypes.c_void_p(pipe_stream), None, _IOLBF, ctypes.c_size_t(0))
    if stream.value and ctypes.c_int.from_address(stream.value + _FILENO_OFFSET).value == 2:
        # Python writes fatal errors to the descriptor of this stream when no thread runs any more.
        ctypes.c_int.from_address(pipe_stream + _FILENO_OFFSET).value = 2
    stream.value = pipe_stream


class _CookieFunctions(ctypes.Structure):
    """`cookie_io_functions_t` of fopencookie(3)."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("read", "write", "seek", "close")]


class _NativeMessages(threading.Thread):
    """Read lines from a pipe and forward them. The write end is for the marker that everything was read."""

    def __init__(self, read_fd: int, write_fd: int, forward: Callable[[str], None]) -> None:
        super().__init__(name="native messages", daemon=True)
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._forward = forward
        self._drained = threading.Event()
        # Keep a reference: `logging` keeps only weak ones.
        self._shutdown_handler = CallOnShutdown(self._drain)

    def run(self) -> None:
        partial_line = b""
        while data := os.read(self._read_fd, _MAX_LINE):
            *lines, partial_line = (partial_line + data.replace(b"\0", b"")).split(b"\n")
            if len(partial_line) > _MAX_LINE:
                lines, partial_line = [*lines, partial_line], b""
            for line in lines:
                if line.startswith(_FATAL_PREFIXES):
                    # The process is about to abort because of an uncaught C++ exception.
                    with suppress(OSError):
                        os.write(2, line + b"\n")
                elif line:
                    self._forward(line[:_MAX_LINE].decode(errors="backslashreplace"))
            if b"\0" in data:
                self._drained.set()

    def _drain(self) -> None:
        """Wait until all written lines are forwarded."""
        self._drained.clear()
        try:
            os.write(self._write_fd, b"\0")
        except BlockingIOError:
            return
        self._drained.wait(_DRAIN_SECONDS)
