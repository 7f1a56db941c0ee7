"""How a coroutine waits for a worker: until the answer is there, the sender has left, or the time is over."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from app.engine.interest import Interest
from app.engine.story import Story

__all__ = ("awaited", "in_time")

T = TypeVar("T")

_PATIENCE = 0.05
"""Seconds after which somebody looks whether the sender is still there; most answers are made in less."""


async def awaited(work: "Future[T]", story: Story, tell: Callable[[Story], None]) -> T:
    """The result of `work`.

    When nobody waits for it any more, work that no worker has begun is dropped, and other work ends at its next step.

    Args:
        work: answers a request.
        story: of that request.
        tell: tells the story of work that was dropped; whoever does the work tells its own.

    Raises:
        InferenceError: what `work` raised; CANCELLED or DEADLINE_EXCEEDED when the request was lost meanwhile.
    """
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[T] = loop.create_future()

    def settle() -> None:
        if settled.done():
            return
        if work.cancelled():
            settled.cancel()
        elif (error := work.exception()) is not None:
            settled.set_exception(error)
        else:
            settled.set_result(work.result())

    def done(_: object) -> None:
        # The loop is gone when the server has stopped meanwhile.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle)

    def lose() -> None:
        loss = story.interest.loss
        if loss is None:
            return
        if work.cancel():
            story.error = loss
            tell(story)
        if not settled.done():
            settled.set_exception(loss)

    watching: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watching
        watching = loop.create_task(_watch(story, lose))

    work.add_done_callback(done)
    left = story.interest.left
    timer = loop.call_later(_PATIENCE if left is None else min(_PATIENCE, max(0, left)), watch)
    try:
        return await settled
    except asyncio.CancelledError:
        # Whoever awaited this has been cancelled, as gRPC does when a client leaves; or the workers were sent home.
        story.interest.leave()
        lose()
        raise
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()


async def _watch(story: Story, lose: Callable[[], None]) -> None:
    gone, left = story.caller.gone, story.interest.left
    try:
        async with asyncio.timeout(left):
            await (gone() if gone is not None else asyncio.Event().wait())
        story.interest.leave()
    except TimeoutError:
        story.interest.expire()
    lose()


async def in_time(coming: Coroutine[Any, Any, T], interest: Interest) -> T:
    """What `coming` gives, if it does so while there is interest in it.

    Raises:
        InferenceError: DEADLINE_EXCEEDED, or whatever `coming` raises.
    """
    if interest.deadline is None:
        return await coming
    try:
        async with asyncio.timeout(interest.left):
            return await coming
    except TimeoutError:
        interest.expire()
        raise interest.loss or TimeoutError from None
