"""Wait in a coroutine for a worker's result, until the client disconnects or the deadline passes."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, TypeVar

from app.engine.interest import stopping
from app.engine.story import RequestContext
from tasks.exchange.error import InferenceError

__all__ = ("awaited", "wait_recorded", "watched")

T = TypeVar("T")

_WATCH_DELAY = 0.05
"""Seconds before the first check for a disconnected client; most requests finish earlier."""


async def awaited(
    work: "Future[T]",
    story: RequestContext,
    tell: Callable[[RequestContext], None],
    is_cut: Callable[[RequestContext], bool],
) -> T:
    """Wait for the result of `work`.

    When the request is cancelled, work that has not started is dropped, and running work stops at its next check.

    Args:
        work: answers a request.
        story: context of that request.
        tell: report work that was dropped; work that has started reports itself.
        is_cut: return whether the server cancels this coroutine, not the client.

    Raises:
        InferenceError: the exception of `work`; CANCELLED or DEADLINE_EXCEEDED if the request was cancelled meanwhile;
            MODEL_NOT_READY if the workers closed before it started, or the server stops.
    """
    waiting = _Waiting(work, story, tell)
    work.add_done_callback(waiting.done)
    try:
        with watched(story, waiting.lose):
            return await waiting.settled
    except asyncio.CancelledError:
        # gRPC cancels the handler when a client disconnects, and uvicorn when it must stop.
        cut = is_cut(story)
        if cut:
            story.interest.cut()
        waiting.lose(True)
        if not waiting.settled.cancelled():
            # Mark the exception as retrieved: asyncio would log it otherwise.
            waiting.settled.exception()
        if cut:
            raise stopping() from None
        raise
    finally:
        waiting.release()


async def wait_recorded(story: RequestContext) -> None:
    """Wait until an inference is recorded.

    Raises:
        InferenceError: if it cannot be recorded.
    """
    if story.kept is not None:
        # A client that disconnects now cancels the waiting, not the recording.
        await asyncio.shield(asyncio.wrap_future(story.kept))


class _Waiting(Generic[T]):
    """A future of the running event loop for the result of `work`.

    Args:
        work: answers a request.
        story: context of that request.
        tell: as for `awaited`.

    Attributes:
        settled: the future to await.
    """

    def __init__(self, work: "Future[T]", story: RequestContext, tell: Callable[[RequestContext], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.settled: asyncio.Future[T] = self._loop.create_future()
        self._work: Future[T] | None = work
        self._story: RequestContext | None = story
        self._tell = tell

    def release(self) -> None:
        """Drop the references to the request."""
        # This object and the work refer to each other: images would stay in memory until the next garbage collection.
        self._work = self._story = None

    def done(self, _: object) -> None:
        """Settle the future after the work has ended. Called from any thread."""
        # The loop is closed if the server has stopped meanwhile.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle)

    def lose(self, gone: bool) -> None:
        """Cancel the request because the client has disconnected (`gone`) or the deadline has passed."""
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
        """Report, once, work that was never started."""
        if self._story is not None:
            story, self._story = self._story, None
            story.error = error
            self._tell(story)


@contextmanager
def watched(story: RequestContext, lose: Callable[[bool], None]) -> Generator[None]:
    """Watch for a disconnected client and for the deadline. Enter it in an event loop.

    Args:
        story: context of the request.
        lose: called once, with True if the client has disconnected, with False if the deadline has passed.
    """
    loop = asyncio.get_running_loop()
    watching: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watching
        watching = loop.create_task(_watch(story, lose))

    def restart() -> None:
        nonlocal timer, watching
        if not open_:
            return
        timer.cancel()
        if watching is not None:
            watching.cancel()
            watching = None
        timer = start()

    def start() -> asyncio.TimerHandle:
        left = story.interest.left
        return loop.call_later(_WATCH_DELAY if left is None else min(_WATCH_DELAY, max(0, left)), watch)

    def shortened() -> None:
        # The loop is closed if the server has stopped meanwhile.
        if not loop.is_closed():
            loop.call_soon_threadsafe(restart)

    open_ = True
    story.interest.on_shortened = shortened
    timer = start()
    try:
        yield
    finally:
        open_ = False
        story.interest.on_shortened = None
        timer.cancel()
        if watching is not None:
            watching.cancel()


async def _watch(story: RequestContext, lose: Callable[[bool], None]) -> None:
    gone, left = story.caller.gone, story.interest.left
    try:
        async with asyncio.timeout(left):
            await (gone() if gone is not None else asyncio.Event().wait())
    except TimeoutError:
        lose(False)
    else:
        lose(True)
