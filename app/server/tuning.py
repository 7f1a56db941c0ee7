"""Process-wide settings that have to be made before the first request."""

import ctypes
import gc

import cv2

__all__ = ("freeze_garbage", "tune_process")

# Parameters of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MIB = 1024 * 1024

_IOLBF = 1
"""By lines: of setvbuf(3), from glibc's stdio.h."""
_LINE_BYTES = 4096


def tune_process() -> None:
    """Keep glibc from giving image-sized blocks back after each request, its stderr to lines, and OpenCV to one thread.

    Every worker is a thread already. Without the first, each request pays for page faults on megabytes of fresh memory
    (docs/architecture.md, "Speed"). Elsewhere than on glibc the allocator is left as it is.
    """
    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        library = ctypes.CDLL(None)
        mallopt = library.mallopt
        error_stream = ctypes.c_void_p.in_dll(library, "stderr")
    except (OSError, AttributeError, ValueError):
        return
    # libpng and libjpeg write what they think of an image in pieces, between which a log line would go unread. The
    # buffer is never freed: the stream outlives the interpreter.
    library.malloc.restype = ctypes.c_void_p
    buffer = ctypes.c_void_p(library.malloc(ctypes.c_size_t(_LINE_BYTES)))
    library.setvbuf(error_stream, buffer, _IOLBF, ctypes.c_size_t(_LINE_BYTES))
    mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)
    mallopt(_M_TRIM_THRESHOLD, 256 * _MIB)
    mallopt(_M_TOP_PAD, 16 * _MIB)


def freeze_garbage() -> None:
    """Take what start-up left behind out of the garbage collector's rounds, and let these begin.

    It lives as long as the process.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
