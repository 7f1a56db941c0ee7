"""Process setup: malloc and free memory."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from app.core.server.process_setup import release_free_memory, releasing_memory, repeating

_ARENAS = """
import ctypes, threading
from app.core.server.process_setup import configure_process
configure_process()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
allocated = threading.Barrier(33)
def allocate():
    library.malloc(100_000)
    allocated.wait()
for _ in range(32):
    threading.Thread(target=allocate).start()
allocated.wait()
library.fdopen.restype = ctypes.c_void_p
library.malloc_info(0, ctypes.c_void_p(library.fdopen(1, b"w")))
library.fflush(None)
"""


def arena_count(**environment: str) -> int:
    completed = subprocess.run(
        [sys.executable, "-c", _ARENAS], capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return completed.stdout.count("<heap nr=")


def test_threads_share_malloc_arenas() -> None:
    assert arena_count() <= max(2, min(8, len(os.sched_getaffinity(0))))


def test_malloc_arena_max_from_the_environment_wins() -> None:
    assert arena_count(MALLOC_ARENA_MAX="11") == 11


_RELEASED = """
import ctypes, re
from pathlib import Path
from app.core.server.process_setup import release_free_memory, configure_process
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
configure_process()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
blocks = [ctypes.c_void_p(library.malloc(ctypes.c_size_t(1 << 20))) for _ in range(100)]
for block in blocks:
    ctypes.memset(block, 1, 1 << 20)
for block in blocks[:-1]:
    library.free(block)
before = resident()
release_free_memory()
print(before - resident())
"""


def test_free_memory_between_used_blocks_is_released() -> None:
    completed = subprocess.run([sys.executable, "-c", _RELEASED], capture_output=True, text=True, check=True)
    assert int(completed.stdout) > 90


def test_garbage_is_collected_with_free_memory() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    gc.disable()
    try:
        reference = weakref.ref(Cycle())
        assert reference() is not None
        release_free_memory()
        assert reference() is None
    finally:
        gc.enable()


def test_memory_is_released_only_without_requests_in_flight() -> None:
    in_flight, calls, released = [True], [0], threading.Event()

    def busy() -> bool:
        calls[0] += 1
        return in_flight[0]

    async def run() -> None:
        async with releasing_memory(busy, 0, released.set):
            while calls[0] < 10:
                await asyncio.sleep(0)
            assert not released.is_set()
            in_flight[0] = False
            assert await asyncio.to_thread(released.wait, 30)

    asyncio.run(run())


def test_action_that_fails_is_logged_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    succeeded, errors = asyncio.Event(), [RuntimeError("can't start new thread")]

    async def act() -> None:
        if errors:
            raise errors.pop()
        succeeded.set()

    async def run() -> None:
        async with repeating(act, 0, "not done"):
            await asyncio.wait_for(succeeded.wait(), 60)

    asyncio.run(run())
    assert [record.message for record in caplog.records] == ["not done"]
