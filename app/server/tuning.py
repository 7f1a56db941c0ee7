"""Process-wide settings that have to be made before the first request."""

import ctypes
import gc

import cv2

__all__ = ("freeze_garbage", "tune_process")

# Parameters of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MIB = 1024 * 1024


def tune_process() -> None:
    """Keep glibc from giving image-sized blocks back after each request, and OpenCV to one quiet thread.

    Every worker is a thread already. Without the first, each request pays for page faults on megabytes of fresh memory
    (docs/architecture.md, "Speed"). Elsewhere than on glibc the allocator is left as it is.
    """
    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
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
