"""How a coroutine waits for a worker: until the answer is there, the sender has left, or the time is over."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, TypeVar

from app.engine.interest import stopping
from app.engine.story import Story
from tasks.exchange.error import InferenceError

__all__ = ("awaited", "kept", "watched")

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
    waiting = _Waiting(work, story, tell)
    work.add_done_callback(waiting.done)
    try:
        with watched(story, waiting.lose):
            return await waiting.settled
    except asyncio.CancelledError:
        # Whoever awaited this has been cancelled, as gRPC does when a client leaves, and uvicorn when it has to stop.
        cut = is_cut(story)
        if cut:
            story.interest.cut()
        waiting.lose(True)
        if not waiting.settled.cancelled():
            # It was lost at the same moment; nobody asks for the reason any more.
            waiting.settled.exception()
        if cut:
            raise stopping() from None
        raise
    finally:
        waiting.release()


async def kept(story: Story) -> None:
    """Wait until an inference is kept.

    Raises:
        InferenceError: when it cannot be.
    """
    if story.kept is not None:
        # A sender who leaves now cancels the waiting, not the keeping.
        await asyncio.shield(asyncio.wrap_future(story.kept))


class _Waiting(Generic[T]):
    """Somebody waits for `work` in the running event loop.

    Args:
        work: answers a request.
        story: of that request.
        tell: as of `awaited`.

    Attributes:
        settled: what is to be awaited.
    """

    def __init__(self, work: "Future[T]", story: Story, tell: Callable[[Story], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.settled: asyncio.Future[T] = self._loop.create_future()
        self._work: Future[T] | None = work
        self._story: Story | None = story
        self._tell = tell

    def release(self) -> None:
        """Let go of the request."""
        # The work knows this object, and this object the work: pictures would stay in memory until the garbage
        # collector looks for such rings, which it rarely does.
        self._work = self._story = None

    def done(self, _: object) -> None:
        """The work has come to its end, in whatever thread."""
        # The loop is gone when the server has stopped meanwhile.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle)

    def lose(self, gone: bool) -> None:
        """Nobody waits any more, because the sender has `gone` or because the time is over."""
        work, story = self._work, self._story
        if work is None or story is None:
            return
        if gone:
            story.interest.leave()
        else:
            story.interest.expire()
        loss = story.interest.loss
        if loss is None:
            return
        if work.cancel():
            self._drop(loss)
        if not self.settled.done():
            self.settled.set_exception(loss)

    def _settle(self) -> None:
        work = self._work
        if work is None or self.settled.done():
            return
        if work.cancelled():
            error = stopping()
            self._drop(error)
            self.settled.set_exception(error)
        elif (failure := work.exception()) is not None:
            self.settled.set_exception(failure)
        else:
            self.settled.set_result(work.result())

    def _drop(self, error: InferenceError) -> None:
        """Tell once of work that nobody has begun."""
        if self._story is not None:
            story, self._story = self._story, None
            story.error = error
            self._tell(story)


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
