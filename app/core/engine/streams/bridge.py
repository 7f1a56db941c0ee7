"""Stream the output of a generator in worker threads to a coroutine, with backpressure."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from app.core.engine.cancellation import CancellationToken, cancellation_scope, raise_if_cancelled, stopping_error
from app.core.engine.scheduling.thread_pool import ThreadPool, run_in_daemon_thread
from tasks.inference.error import ErrorKind, InferenceError

ItemT = TypeVar("ItemT")

_BUFFER_SIZE = 32

_logger = logging.getLogger(__name__)


class StreamBridge(Generic[ItemT]):
    """Run a generator in worker threads for one coroutine, a few items ahead of it.

    A slow reader does not block a worker: when the buffer is full, the bridge releases its worker, and requests one
    again when half of the buffer is free. When the reader leaves, the generator stops at its next item, or at once if
    no worker runs it.

    Args:
        source: raises only `InferenceError`; runs in one thread at a time, and is closed at the end.
        queue: the model in whose queue the bridge waits for a worker.
        pool: the workers.
        on_end: called once at the end of the generator, before the reader learns of it. Its argument is the error, or
            None for success, which includes a reader that left after the first item.
        token: the cancellation token of the request.
    """

    def __init__(
        self,
        source: Generator[ItemT, Any, Any],
        queue: str,
        pool: ThreadPool,
        on_end: Callable[[InferenceError | None], None],
        token: CancellationToken,
    ) -> None:
        self._source = source
        self._queue = queue
        self._pool = pool
        self._on_end = on_end
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._lock = threading.Lock()
        self._buffer: deque[ItemT] = deque()
        self._job_id = 0
        self._has_output = False
        self._cancel_error: InferenceError | None = None
        # The thread that clears `_parked` owns the generator: the reader does so to resume or to leave.
        self._parked = False
        self._reader_left = False
        self._finished = False
        self._error: InferenceError | None = None
        self._request_worker()

    async def next_item(self) -> ItemT | None:
        """Return the next item, None after the last one.

        Raise the error of the generator after its last item, or the error of `cancel`.
        """
        while True:
            self._changed.clear()
            with self._lock:
                item = self._buffer.popleft() if self._buffer else None
                finished, error = self._finished, self._error if self._finished else self._cancel_error
                resume = self._parked and len(self._buffer) <= _BUFFER_SIZE // 2
                if resume:
                    self._parked = False
            if resume:
                self._request_worker()
            if item is not None:
                return item
            if error is not None:
                raise error
            if finished:
                return None
            await self._changed.wait()

    def cancel(self, *, disconnected: bool) -> None:
        """Cancel because the client has disconnected (`disconnected`) or the deadline has passed.

        The reader gets the error when it next calls `next_item`. A reader that is blocked holds no worker.
        """
        with self._lock:
            if not disconnected:
                self._token.expire()
            elif not self._has_output:
                self._token.cancel()
            self._cancel_error = self._token.cancellation or InferenceError(
                ErrorKind.CANCELLED, "The client disconnected"
            )
            owns_source, self._parked = self._parked, False
        self._changed.set()
        if owns_source:
            job = partial(self._finish, self._token.cancellation, self._cancel_error)
            threading.Thread(target=job, name="stream closing", daemon=True).start()

    async def close(self) -> None:
        """Stop reading. Always call this at the end."""
        with self._lock:
            self._reader_left = True
            if not self._has_output:
                self._token.cancel()
            self._buffer.clear()
            owns_source, self._parked = self._parked, False
        if owns_source:
            # Closing the model's generator may take long, and must not block the event loop.
            await run_in_daemon_thread(lambda: self._finish(self._token.cancellation), "stream closing")
        elif not self._finished and self._pool.remove(self._queue, self._job_id):
            self._finish(self._token.cancellation)

    def _request_worker(self) -> None:
        try:
            self._job_id = self._pool.add(self._queue, self)
        except RuntimeError:
            self._finish(stopping_error())

    def drop(self) -> None:
        """End the stream because the workers are closed. Called in any thread."""
        self._finish(self._token.cancellation if self._reader_left else stopping_error())

    def run(self) -> bool:
        """Generate items until the buffer is full or the stream ends, in a worker."""
        error: InferenceError | None = None
        try:
            while not self._reader_left:
                with cancellation_scope(self._token):
                    raise_if_cancelled()
                    item = next(self._source)
                with self._lock:
                    if not self._reader_left:
                        self._has_output = True
                        self._buffer.append(item)
                    parked = not self._reader_left and len(self._buffer) >= _BUFFER_SIZE
                    self._parked = parked
                self._notify()
                if parked:
                    return True
            error = self._token.cancellation
        except StopIteration:
            pass
        except InferenceError as failure:
            error = failure
        self._finish(error)
        return True

    def _finish(self, error: InferenceError | None, reader_error: InferenceError | None = None) -> None:
        try:
            self._source.close()
        except BaseException:  # `SystemExit` and `KeyboardInterrupt` from model code must not stop the worker
            _logger.exception("a stream could not be closed")
        try:
            self._on_end(error)
        finally:
            with self._lock:
                self._finished, self._error = True, error or reader_error
            self._notify()

    def _notify(self) -> None:
        # The loop is closed if the server has stopped meanwhile; then there is no reader either.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._changed.set)
