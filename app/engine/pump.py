"""Stream the output of a generator in worker threads to a coroutine, with backpressure."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from app.engine.awaiting import wait_recorded, watched
from app.engine.daemon import in_daemon_thread
from app.engine.interest import CancellationToken, check_interest, on_behalf_of, stopping
from app.engine.story import RequestContext
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("pumped",)

PieceT = TypeVar("PieceT")

_logger = logging.getLogger(__name__)


async def pumped(
    source: Generator[PieceT, Any, Any],
    submit: Callable[[Callable[[], None]], Future[None]],
    ended: Callable[[InferenceError | None], None],
    story: RequestContext,
    is_cut: Callable[[RequestContext], bool],
    *,
    whole: bool,
) -> AsyncGenerator[PieceT]:
    """Yield the items of `source`, which runs in workers. Always close this generator.

    Args:
        source: answers a request.
        submit: submit a job to the workers.
        ended: as for `StreamBridge`; reports the request.
        story: context of that request.
        is_cut: return whether the server cancels this coroutine, not the client.
        whole: whether a client that leaves before the last item counts as disconnected.

    Raises:
        InferenceError: the exception of `source`; CANCELLED or DEADLINE_EXCEEDED if the request was cancelled;
            MODEL_NOT_READY if the server stops; the error of recording if it fails.
    """
    pump = StreamBridge(source, submit, ended, story.interest, whole=whole)
    pump.start()
    try:
        with watched(story, pump.cancel):
            while (piece := await pump.take()) is not None:
                yield piece
            await wait_recorded(story)
    except asyncio.CancelledError:
        if not is_cut(story):
            raise
        story.interest.cut()
        raise stopping() from None
    finally:
        await pump.close()


class StreamBridge(Generic[PieceT]):
    """Run a generator in worker threads for one coroutine, at most `room` items ahead of it.

    A slow reader does not block a worker: when the buffer is full, the bridge releases its worker, and requests one
    again when half of the buffer is free. When the reader leaves, the generator stops at its next item, or at once if
    no worker runs it.

    Args:
        source: raises only `InferenceError`; runs in one thread at a time, and is closed at the end.
        submit: submit a job to the workers; raises RuntimeError after they are closed.
        ended: called once at the end of the generator, before the reader learns of it. Its argument is the error, or
            None for success, which includes a reader that left after the first item.
        interest: the cancellation token of the request.
        room: size of the buffer.
        whole: whether a reader that leaves before the last item counts as disconnected.
    """

    def __init__(
        self,
        source: Generator[PieceT, Any, Any],
        submit: Callable[[Callable[[], None]], Future[None]],
        ended: Callable[[InferenceError | None], None],
        interest: CancellationToken | None = None,
        room: int = 32,
        *,
        whole: bool = False,
    ) -> None:
        self._source = source
        self._submit = submit
        self._ended = ended
        self._interest = interest or CancellationToken()
        self._room = room
        self._whole = whole
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._lock = threading.Lock()
        self._buffer: deque[PieceT] = deque()
        self._job: Future[None] | None = None
        self._has_output = False
        self._cancelled_by: InferenceError | None = None
        # The thread that clears `_parked` owns the generator: the reader does so to resume or to leave.
        self._parked = False
        self._left = False
        self._finished = False
        self._error: InferenceError | None = None

    def start(self) -> None:
        """Submit the first job. Call this once, first."""
        self._submit_job()

    async def take(self) -> PieceT | None:
        """Return the next item, None after the last one.

        Raises:
            InferenceError: the error of the generator after its last item, or the error of `cancel`.
        """
        while True:
            self._changed.clear()
            with self._lock:
                piece = self._buffer.popleft() if self._buffer else None
                finished = self._finished and piece is None
                error = self._cancelled_by if piece is None and not finished else None
                resumed = self._parked and len(self._buffer) <= self._room // 2
                if resumed:
                    self._parked = False
            if resumed:
                self._submit_job()
            if piece is not None:
                return piece
            if finished:
                if self._error is not None:
                    raise self._error
                return None
            if error is not None:
                raise error
            await self._changed.wait()

    def cancel(self, gone: bool) -> None:
        """Cancel because the client has disconnected (`gone`) or the deadline has passed.

        The reader gets the error when it next calls `take`. A reader that is blocked holds no worker.
        """
        with self._lock:
            if not gone:
                self._interest.expire()
            elif self._whole or not self._has_output:
                self._interest.leave()
            self._cancelled_by = self._interest.loss or InferenceError(ErrorKind.CANCELLED, "The client disconnected")
            owned, self._parked = self._parked, False
        self._changed.set()
        if owned:
            job = partial(self._finish, self._interest.loss, self._cancelled_by)
            threading.Thread(target=job, name="leaving", daemon=True).start()

    async def close(self) -> None:
        """Stop reading. Always call this at the end."""
        with self._lock:
            self._left = True
            if self._whole or not self._has_output:
                self._interest.leave()
            self._buffer.clear()
            owned, self._parked = self._parked, False
        if owned:
            # Closing the model's generator may take long, and must not block the event loop.
            await in_daemon_thread(lambda: self._finish(self._interest.loss), "leaving")
        elif self._job is not None:
            self._job.cancel()

    def _submit_job(self) -> None:
        try:
            self._job = self._submit(self._work)
        except RuntimeError:
            self._finish(stopping())
        else:
            self._job.add_done_callback(self._job_done)

    def _work(self) -> None:
        while True:
            with self._lock:
                left = self._left
            if left:
                return self._finish(self._interest.loss)
            try:
                with on_behalf_of(self._interest):
                    check_interest()
                    piece = next(self._source)
            except StopIteration:
                return self._finish(None)
            except InferenceError as error:
                return self._finish(error)
            with self._lock:
                if not self._left:
                    self._has_output = True
                    self._buffer.append(piece)
                parked = not self._left and len(self._buffer) >= self._room
                self._parked = parked
            self._notify()
            if parked:
                return None

    def _job_done(self, job: Future[None]) -> None:
        """Finish if the job never started, because the reader left or the workers were closed."""
        if job.cancelled():
            with self._lock:
                left = self._left
            self._finish(self._interest.loss if left else stopping())

    def _finish(self, error: InferenceError | None, shown: InferenceError | None = None) -> None:
        try:
            self._source.close()
        except BaseException:  # `SystemExit` and `KeyboardInterrupt` from model code must not stop the worker
            _logger.exception("a stream could not be closed")
        try:
            self._ended(error)
        finally:
            with self._lock:
                self._finished, self._error = True, error or shown
            self._notify()

    def _notify(self) -> None:
        # The loop is closed if the server has stopped meanwhile; then there is no reader either.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._changed.set)
