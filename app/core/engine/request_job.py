"""One admitted request on its way through a worker, and what may end it early: its deadline and its client."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

from app.core.engine.cancellation import stopping_error
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.thread_pool import ThreadPool
from tasks.inference.error import InferenceError

WireT = TypeVar("WireT")

_WATCH_DELAY = 0.05
"""Seconds before the first check for a disconnected client; most requests finish earlier."""


class DeadlineTimer:
    """Call `on_expired` in the event loop when the deadline of a request passes, also if it gets shorter meanwhile."""

    def __init__(self, context: RequestContext, on_expired: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._on_expired = on_expired
        self._handle: asyncio.TimerHandle | None = None
        context.on_shortened = self._on_shortened
        if context.deadline is not None:
            self._schedule()

    def close(self) -> None:
        """Stop the timer."""
        self._context.on_shortened = None
        # This object and its owner refer to each other: images would stay in memory until the next garbage collection.
        del self._on_expired
        if self._handle is not None:
            self._handle.cancel()

    def _on_shortened(self) -> None:
        # The loop is closed if the server has stopped meanwhile.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        deadline = self._context.deadline
        if self._context.on_shortened is not None and deadline is not None:
            self._handle = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._on_expired)


class RequestJob(Generic[WireT]):
    """A request that waits for a worker or runs in one. Create it in an event loop.

    Args:
        context: the request, which is admitted.
        queue: the model in whose queue it waits.
        work: answer and report the request, in a worker.
        report: report a request that no worker has started.
        pool: the workers.
        release: stop counting the request; called when its worker is free, even after the client has disconnected.

    Attributes:
        done: completes in the event loop when `result` has the answer or the error.
    """

    def __init__(
        self,
        context: RequestContext,
        queue: str,
        work: Callable[[], WireT],
        report: Callable[[RequestContext], None],
        pool: ThreadPool,
        release: Callable[[], None],
    ) -> None:
        self.context = context
        self._queue = queue
        self._work = work
        self._report = report
        self._pool = pool
        self._release = release
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._answer: WireT | None = None
        self._error: BaseException | None = None
        # Whether the worker has finished, or the job has left the queue; then cancellation comes too late.
        self._is_settled = False
        self._is_done = False
        self._timer = DeadlineTimer(context, self._expire)
        try:
            self._id = pool.add(queue, self)
        except RuntimeError:
            self._timer.close()
            raise self._dropped(stopping_error()) from None

    def result(self) -> WireT:
        """Return the answer. Raise InferenceError for every failure."""
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]

    def cancel(self) -> None:
        """Cancel because the client has disconnected. A job that waits is dropped; one that runs stops soon."""
        if not self._is_settled:
            self.context.cancel()
            self._end_early()

    def run(self) -> bool:
        """Answer the request, in a worker."""
        try:
            self._answer = self._work()
        except BaseException as error:  # noqa: BLE001  `result` raises it
            self._error = error
        self._is_settled = True
        self._release()
        recorded = self.context.take_recorded()
        if recorded is None or self._error is not None:
            self._notify()
        else:
            recorded.add_done_callback(self._on_recorded)
        return True

    def drop(self) -> None:
        """End the request because the workers are closed. Called in any thread."""
        self._error = self._dropped(stopping_error())
        self._notify()

    def _expire(self) -> None:
        if not self._is_settled:
            self.context.expire()
            self._end_early()

    def _end_early(self) -> None:
        """Answer with the error of cancellation now, without the worker."""
        error = self.context.cancellation
        if error is not None and not self._is_done:
            if self._pool.remove(self._queue, self._id):
                self._dropped(error)
            self._error = error
            self._finish()

    def _dropped(self, error: InferenceError) -> InferenceError:
        """Report a request that no worker has started. Return its error."""
        self._is_settled = True
        self._release()
        self.context.failure = error
        self._report(self.context)
        return error

    def _on_recorded(self, recorded: Future[None]) -> None:
        self._error = recorded.exception()
        self._notify()

    def _notify(self) -> None:
        # The loop is closed if the server has stopped meanwhile.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._timer.close()
            # It is cancelled with the coroutine that waits for it.
            if not self.done.done():
                self.done.set_result(None)


async def wait_recorded(context: RequestContext) -> None:
    """Wait until an inference is recorded. Raise InferenceError if it cannot be recorded."""
    recorded = context.take_recorded()
    if recorded is not None:
        # A client that disconnects now cancels the waiting, not the recording.
        await asyncio.shield(asyncio.wrap_future(recorded))


class DisconnectWatch:
    """Call `on_disconnected` once, after the client of a request has disconnected. Create it in an event loop."""

    def __init__(self, context: RequestContext, on_disconnected: Callable[[], None]) -> None:
        self._on_disconnected = on_disconnected
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        if context.disconnected is not None:
            self._timer = asyncio.get_running_loop().call_later(_WATCH_DELAY, self._start, context.disconnected)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self, disconnected: Callable[[], Awaitable[object]]) -> None:
        self._task = asyncio.ensure_future(self._watch(disconnected))

    async def _watch(self, disconnected: Callable[[], Awaitable[object]]) -> None:
        await disconnected()
        self._on_disconnected()
