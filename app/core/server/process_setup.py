"""Apply process-wide settings before the first request."""

import asyncio
import ctypes
import gc
import logging
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import cv2

from app.core.engine.scheduling.thread_pool import run_in_daemon_thread

_RELEASE_SECONDS = 30.0
_logger = logging.getLogger(__name__)

# Parameters of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_MIB = 1024 * 1024

_MAX_ARENAS = 8
"""Each arena keeps the memory of its largest requests, and glibc's default is eight arenas for each core. A thread
holds an arena for less than a microsecond at a time, so a few arenas serve many cores."""


def configure_process() -> None:
    """Keep image-sized blocks between requests in few arenas, limit OpenCV to one thread, and silence gRPC's own log.

    OpenCV threads are useless because every worker is a thread already. Without kept blocks, each request pays for page
    faults on megabytes of fresh memory (docs/architecture.md, "Speed"). With one arena for each thread, every arena
    keeps such blocks, and memory grows for hours.
    """
    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    # Every failed handshake of any client would be a line, and no JSON.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)
    mallopt(_M_TRIM_THRESHOLD, 256 * _MIB)
    mallopt(_M_TOP_PAD, 16 * _MIB)
    if "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, max(2, min(_MAX_ARENAS, len(os.sched_getaffinity(0)))))


def handle_other_signals() -> None:
    """Drain after SIGHUP as after SIGTERM, and ignore SIGUSR1 and SIGUSR2. By default they end a process at once.

    A SIGHUP that is ignored already, as under nohup, stays ignored.
    """
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: signal.raise_signal(signal.SIGTERM))
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        # Child processes would inherit SIG_IGN, but they do not inherit a handler.
        signal.signal(number, lambda _number, _frame: None)


def freeze_garbage() -> None:
    """Exclude the objects of the start-up from garbage collection, enable the collector, and return free memory.

    These objects live as long as the process.
    """
    release_free_memory()
    gc.freeze()
    gc.enable()


def release_free_memory() -> None:
    """Collect garbage, and return free memory of malloc to the system."""
    # The error of a request and the request refer to each other, and keep its images and an unloaded model.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


@asynccontextmanager
async def releasing_memory(
    busy: Callable[[], bool], seconds: float = _RELEASE_SECONDS, release: Callable[[], None] = release_free_memory
) -> AsyncGenerator[None]:
    """While entered, return free memory to the system whenever no request is in flight.

    Otherwise the memory of the largest requests stays: `configure_process` lets malloc keep up to 256 MiB in each
    arena.
    """

    async def release_when_idle() -> None:
        if not busy():
            await run_in_daemon_thread(release)

    async with repeating(release_when_idle, seconds, "memory not released"):
        yield


@asynccontextmanager
async def repeating(action: Callable[[], Awaitable[object]], seconds: float, failure: str) -> AsyncGenerator[None]:
    """While entered, call `action` every `seconds`; log its errors as `failure`, as when no thread can be started."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await action()
            except Exception:
                _logger.exception(failure)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
