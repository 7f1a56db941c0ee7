"""Work in daemon threads, which the event loop does not wait for."""

import asyncio
import threading

import pytest

from app.core.engine.scheduling.thread_pool import run_in_daemon_thread


def fail() -> None:
    raise KeyError("x")


def test_daemon_thread_returns_results_and_errors() -> None:
    async def run() -> None:
        assert await run_in_daemon_thread(lambda: 3) == 3
        assert await run_in_daemon_thread(lambda: threading.current_thread().daemon)
        with pytest.raises(KeyError):
            await run_in_daemon_thread(fail)

    asyncio.run(run())


def test_event_loop_ends_while_daemon_work_runs() -> None:
    proceed, ended = threading.Event(), threading.Event()

    def hang() -> None:
        assert proceed.wait(60)
        ended.set()

    async def run() -> None:
        task = asyncio.create_task(run_in_daemon_thread(hang))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert not ended.is_set()
    proceed.set()
    assert ended.wait(60)
