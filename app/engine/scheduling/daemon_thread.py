"""Run jobs that may never end in daemon threads."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(job: Callable[[], T], name: str = "loading") -> T:
    """Run `job` in a daemon thread called `name`, and return its result.

    The interpreter waits for executor threads at exit, but not for daemon threads: a model that hangs while it loads
    must not keep the server from stopping.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001  the awaiting coroutine raises it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await asyncio.wrap_future(future)
