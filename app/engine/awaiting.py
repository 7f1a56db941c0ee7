"""How a coroutine waits for a worker: until the answer is there, the sender has left, or the time is over."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from app.engine.interest import stopping
from app.engine.story import Story
from tasks.exchange.error import InferenceError

__all__ = ("awaited", "watched")

T = TypeVar("T")

_PATIENCE = 0.05
"""Seconds after which somebody looks whether the sender is still there; most answers are made in less."""


async def awaited(work: "Future[T]", story: Story, tell: Callable[[Story], None], is_cut: Callable[[Story], bool]) -> T:
    """The result of `work`.

    When nobody waits for it any more, work that no worker has begun is dropped, and other work ends at its next step.

    Args:
        work: answers a request.
        story: of that request.
        tell: tells the story of work that was dropped, once; whoever does the work tells its own.
        is_cut: whether it is the server that cancels this, and not the sender.

    Raises:
        InferenceError: what `work` raised; CANCELLED or DEADLINE_EXCEEDED when the request was lost meanwhile;
            MODEL_NOT_READY when the workers were sent home before one took it up, or the server waits no longer.
    """
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[T] = loop.create_future()
    told = False

    def drop(error: InferenceError) -> None:
        nonlocal told
        if not told:
            told = True
            story.error = error
            tell(story)

    def settle() -> None:
        if settled.done():
            return
        if work.cancelled():
            drop(error := stopping())
            settled.set_exception(error)
        elif (error := work.exception()) is not None:
            settled.set_exception(error)
        else:
            settled.set_result(work.result())

    def done(_: object) -> None:
        # The loop is gone when the server has stopped meanwhile.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle)

    def lose(gone: bool) -> None:
        if gone:
            story.interest.leave()
        else:
            story.interest.expire()
        loss = story.interest.loss
        if loss is None:
            return
        if work.cancel():
            drop(loss)
        if not settled.done():
            settled.set_exception(loss)

    work.add_done_callback(done)
    try:
        with watched(story, lose):
            return await settled
    except asyncio.CancelledError:
        # Whoever awaited this has been cancelled, as gRPC does when a client leaves, and uvicorn when it has to stop.
        cut = is_cut(story)
        if cut:
            story.interest.cut()
        lose(True)
        if not settled.cancelled():
            # It was lost at the same moment; nobody asks for the reason any more.
            settled.exception()
        if cut:
            raise stopping() from None
        raise


@contextmanager
def watched(story: Story, lose: Callable[[bool], None]) -> Generator[None]:
    """While entered, look whether anybody still waits for what is told in `story`. To be entered in an event loop.

    Args:
        story: of the request.
        lose: called once when nobody does: with True when the sender has left, with False when the time is over.
    """
    loop = asyncio.get_running_loop()
    watching: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watching
        watching = loop.create_task(_watch(story, lose))

    left = story.interest.left
    timer = loop.call_later(_PATIENCE if left is None else min(_PATIENCE, max(0, left)), watch)
    try:
        yield
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()


async def _watch(story: Story, lose: Callable[[bool], None]) -> None:
    gone, left = story.caller.gone, story.interest.left
    try:
        async with asyncio.timeout(left):
            await (gone() if gone is not None else asyncio.Event().wait())
    except TimeoutError:
        lose(False)
    else:
        lose(True)
