"""Wait in a coroutine for a worker's result, until the client disconnects or the deadline passes."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, TypeVar

from app.engine.cancellation import stopping_error
from app.engine.request_context import RequestContext
from tasks.inference.error import InferenceError

__all__ = ("wait_for_result", "wait_recorded", "watch_disconnect")

T = TypeVar("T")

_WATCH_DELAY = 0.05
"""Seconds before the first check for a disconnected client; most requests finish earlier."""


async def wait_for_result(
    work: "Future[T]",
    context: RequestContext,
    report: Callable[[RequestContext], None],
    is_aborted: Callable[[RequestContext], bool],
) -> T:
    """Wait for the result of `work`.

    When the request is cancelled, work that has not started is dropped, and running work stops at its next check.

    Args:
        work: answers a request.
        context: context of that request.
        report: report work that was dropped; work that has started reports itself.
        is_aborted: return whether the server cancels this coroutine, not the client.

    Raises:
        InferenceError: the exception of `work`; CANCELLED or DEADLINE_EXCEEDED if the request was cancelled meanwhile;
            MODEL_NOT_READY if the workers closed before it started, or the server stops.
    """
    pending = _PendingResult(work, context, report)
    work.add_done_callback(pending.on_work_done)
    try:
        with watch_disconnect(context, pending.cancel):
            return await pending.outcome
    except asyncio.CancelledError:
        # gRPC cancels the handler when a client disconnects, and uvicorn when it must stop.
        aborted = is_aborted(context)
        if aborted:
            context.token.abort()
        pending.cancel(True)
        if not pending.outcome.cancelled():
            # Mark the exception as retrieved: asyncio would log it otherwise.
            pending.outcome.exception()
        if aborted:
            raise stopping_error() from None
        raise
    finally:
        pending.release()


async def wait_recorded(context: RequestContext) -> None:
    """Wait until an inference is recorded.

    Raises:
        InferenceError: if it cannot be recorded.
    """
    if context.recorded is not None:
        # A client that disconnects now cancels the waiting, not the recording.
        await asyncio.shield(asyncio.wrap_future(context.recorded))


class _PendingResult(Generic[T]):
    """A future of the running event loop for the result of `work`.

    Args:
        work: answers a request.
        context: context of that request.
        report: as for `wait_for_result`.

    Attributes:
        outcome: the future to await.
    """

    def __init__(self, work: "Future[T]", context: RequestContext, report: Callable[[RequestContext], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[T] = self._loop.create_future()
        self._work: Future[T] | None = work
        self._context: RequestContext | None = context
        self._report = report

    def release(self) -> None:
        """Drop the references to the request."""
        # This object and the work refer to each other: images would stay in memory until the next garbage collection.
        self._work = self._context = None

    def on_work_done(self, _: object) -> None:
        """Settle the future after the work has ended. Called from any thread."""
        # The loop is closed if the server has stopped meanwhile.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._set_outcome)

    def cancel(self, disconnected: bool) -> None:
        """Cancel the request because the client has disconnected (`disconnected`) or the deadline has passed."""
        work, context = self._work, self._context
        if work is None or context is None:
            return
        if disconnected:
            context.token.cancel()
        else:
            context.token.expire()
        error = context.token.error
        if error is None:
            return
        if work.cancel():
            self._report_dropped(error)
        if not self.outcome.done():
            self.outcome.set_exception(error)

    def _set_outcome(self) -> None:
        work = self._work
        if work is None or self.outcome.done():
            return
        if work.cancelled():
            error = stopping_error()
            self._report_dropped(error)
            self.outcome.set_exception(error)
        elif (exception := work.exception()) is not None:
            self.outcome.set_exception(exception)
        else:
            self.outcome.set_result(work.result())

    def _report_dropped(self, error: InferenceError) -> None:
        """Report, once, work that was never started."""
        if self._context is not None:
            context, self._context = self._context, None
            context.error = error
            self._report(context)


@contextmanager
def watch_disconnect(context: RequestContext, cancel: Callable[[bool], None]) -> Generator[None]:
    """Watch for a disconnected client and for the deadline. Enter it in an event loop.

    Args:
        context: context of the request.
        cancel: called once, with True if the client has disconnected, with False if the deadline has passed.
    """
    loop = asyncio.get_running_loop()
    watch_task: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watch_task
        watch_task = loop.create_task(_watch(context, cancel))

    def restart() -> None:
        nonlocal timer, watch_task
        if not is_open:
            return
        timer.cancel()
        if watch_task is not None:
            watch_task.cancel()
            watch_task = None
        timer = start()

    def start() -> asyncio.TimerHandle:
        remaining = context.token.remaining
        return loop.call_later(_WATCH_DELAY if remaining is None else min(_WATCH_DELAY, max(0, remaining)), watch)

    def shortened() -> None:
        # The loop is closed if the server has stopped meanwhile.
        if not loop.is_closed():
            loop.call_soon_threadsafe(restart)

    is_open = True
    context.token.on_shortened = shortened
    timer = start()
    try:
        yield
    finally:
        is_open = False
        context.token.on_shortened = None
        timer.cancel()
        if watch_task is not None:
            watch_task.cancel()


async def _watch(context: RequestContext, cancel: Callable[[bool], None]) -> None:
    wait_disconnected, remaining = context.info.disconnected, context.token.remaining
    try:
        async with asyncio.timeout(remaining):
            await (wait_disconnected() if wait_disconnected is not None else asyncio.Event().wait())
    except TimeoutError:
        cancel(False)
    else:
        cancel(True)
