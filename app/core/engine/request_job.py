"""One admitted request on its way through a worker, and what may end it early: its deadline and its client."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from app.core.engine.cancellation import stopping_error
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.thread_pool import ThreadPool
from tasks.inference.error import InferenceError

WireT = TypeVar("WireT")

_WATCH_DELAY = 0.05
"""Seconds before the first check for a disconnected client; most requests finish earlier."""


class EndWatch:
    """Call `on_end` in the event loop when a request ends before its response. Create it in an event loop.

    Its argument is False if the deadline passes, also if it gets shorter meanwhile, and True if the client disconnects.
    """

    def __init__(self, context: RequestContext, on_end: Callable[[bool], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._on_end = on_end
        self._deadline: asyncio.TimerHandle | None = None
        self._disconnect: asyncio.TimerHandle | asyncio.Task[None] | None = None
        context.on_shortened = self._on_shortened
        if context.deadline is not None:
            self._schedule()
        if context.disconnected is not None:
            self._disconnect = self._loop.call_later(_WATCH_DELAY, self._start, context.disconnected)

    def close(self) -> None:
        """Stop watching."""
        self._context.on_shortened = None
        # This object and its owner refer to each other: images would stay in memory until the next garbage collection.
        del self._on_end
        if self._deadline is not None:
            self._deadline.cancel()
        if self._disconnect is not None:
            self._disconnect.cancel()

    def _on_shortened(self) -> None:
        # The loop is closed if the server has stopped meanwhile.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        deadline = self._context.deadline
        if self._context.on_shortened is not None and deadline is not None:
            self._deadline = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._on_end, False)

    def _start(self, disconnected: Callable[[], Awaitable[object]]) -> None:
        self._disconnect = asyncio.ensure_future(self._watch(disconnected))

    async def _watch(self, disconnected: Callable[[], Awaitable[object]]) -> None:
        await disconnected()
        self._on_end(True)


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
        done: completes in the event loop with the result of `work`, or with an InferenceError.
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
        self.done: asyncio.Future[WireT] = self._loop.create_future()
        self._result: Any = None
        self._error: BaseException | None = None
        # Whether the worker has finished, or the job has left the queue; then cancellation comes too late.
        self._is_settled = False
        self._is_done = False
        self._watch = EndWatch(context, self._end)
        try:
            self._id = pool.add(queue, self)
        except RuntimeError:
            self._watch.close()
            raise self._dropped(stopping_error()) from None

    def cancel(self) -> None:
        """Cancel because the client has disconnected. A job that waits is dropped; one that runs stops soon."""
        self._end(True)

    def run(self) -> bool:
        """Answer the request, in a worker."""
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001  `done` raises it
            self._error = error
        self._is_settled = True
        self._release()
        # Its callbacks refer to the context, and a cycle would keep the images.
        recorded, self.context.recorded = self.context.recorded, None
        if recorded is None or self._error is not None:
            self._notify()
        else:
            recorded.add_done_callback(self._on_recorded)
        return True

    def drop(self) -> None:
        """End the request because the workers are closed. Called in any thread."""
        self._error = self._dropped(stopping_error())
        self._notify()

    def _end(self, disconnected: bool) -> None:
        """Answer with the error of cancellation now, without the worker."""
        if self._is_settled:
            return
        if disconnected:
            self.context.cancel()
        else:
            self.context.expire()
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
            self._watch.close()
            # It is cancelled with the coroutine that waits for it.
            if self.done.done():
                return
            if self._error is None:
                self.done.set_result(self._result)
            else:
                self.done.set_exception(self._error)


async def wait_recorded(context: RequestContext) -> None:
    """Wait until an inference is recorded. Raise InferenceError if it cannot be recorded."""
    recorded, context.recorded = context.recorded, None
    if recorded is not None:
        # A client that disconnects now cancels the waiting, not the recording.
        await asyncio.shield(asyncio.wrap_future(recorded))
