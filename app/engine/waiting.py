"""Wait in a coroutine for a recorded inference, and watch for a client that disconnects."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from app.engine.request_context import RequestContext

__all__ = ("wait_recorded", "watch_disconnect")

_WATCH_DELAY = 0.05
"""Seconds before the first check for a disconnected client; most requests finish earlier."""


async def wait_recorded(context: RequestContext) -> None:
    """Wait until an inference is recorded.

    Raises:
        InferenceError: if it cannot be recorded.
    """
    if context.recorded is not None:
        # A client that disconnects now cancels the waiting, not the recording.
        await asyncio.shield(asyncio.wrap_future(context.recorded))


@contextmanager
def watch_disconnect(context: RequestContext, on_disconnected: Callable[[], None]) -> Generator[None]:
    """Watch for a disconnected client. Enter it in an event loop.

    Args:
        context: context of the request.
        on_disconnected: called once, after the client has disconnected.
    """
    if (wait_disconnected := context.disconnected) is None:
        yield
        return
    loop = asyncio.get_running_loop()
    task: asyncio.Task[None] | None = None

    async def watch() -> None:
        await wait_disconnected()
        on_disconnected()

    def start() -> None:
        nonlocal task
        task = loop.create_task(watch())

    timer = loop.call_later(_WATCH_DELAY, start)
    try:
        yield
    finally:
        timer.cancel()
        if task is not None:
            task.cancel()
