"""Run jobs that may never end in daemon threads."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ("run_in_daemon_thread",)

T = TypeVar("T")


async def run_in_daemon_thread(job: Callable[[], T], name: str = "loading") -> T:
    """Run `job` in a daemon thread called `name`, and return its result.

    The interpreter waits for executor threads at exit, but not for daemon threads: a model that hangs while it loads
    must not keep the server from stopping.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_result(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # pyright: ignore[reportArgumentType]

    def work() -> None:
        result, error = None, None
        try:
            result = job()
        except BaseException as raised:  # noqa: BLE001  the awaiting coroutine raises it
            error = raised
        # The loop is closed if the server has stopped meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(set_result, result, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future
