"""Work that may never end, and an event loop that does not wait for it."""

import asyncio
import threading

import pytest

from app.engine.daemon import in_daemon_thread


def refuse() -> None:
    raise KeyError("x")


def test_results_and_errors_come_back() -> None:
    async def both() -> None:
        assert await in_daemon_thread(lambda: 3) == 3
        assert await in_daemon_thread(lambda: threading.current_thread().daemon)
        with pytest.raises(KeyError):
            await in_daemon_thread(refuse)

    asyncio.run(both())


def test_the_loop_ends_though_the_work_goes_on() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def hang() -> None:
        assert go_on.wait(60)
        ended.set()

    async def leave() -> None:
        task = asyncio.create_task(in_daemon_thread(hang))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leave())
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(60)
