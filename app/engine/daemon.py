"""Work that may never end, in threads that nobody has to wait for."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ("in_daemon_thread",)

T = TypeVar("T")


async def in_daemon_thread(job: Callable[[], T], name: str = "loading") -> T:
    """The result of `job`, run in a thread of its own, called `name`.

    Neither the event loop nor the interpreter waits for it at its end, as they do for the threads of an executor: a
    model that hangs while it is loaded is not to keep a server from stopping.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
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
        except BaseException as raised:  # noqa: BLE001  it belongs to whoever awaits the job
            error = raised
        # The loop is gone when the server has stopped meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future
