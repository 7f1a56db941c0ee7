"""How a coroutine reads what workers make piece by piece, at whatever pace it is read."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from app.engine.awaiting import kept, watched
from app.engine.daemon import in_daemon_thread
from app.engine.interest import Interest, check_interest, on_behalf_of, stopping
from app.engine.story import Story
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("pumped",)

PieceT = TypeVar("PieceT")

_logger = logging.getLogger(__name__)


async def pumped(
    source: Generator[PieceT, Any, Any],
    submit: Callable[[Callable[[], None]], Future[None]],
    ended: Callable[[InferenceError | None], None],
    story: Story,
    is_cut: Callable[[Story], bool],
    *,
    whole: bool,
) -> AsyncGenerator[PieceT]:
    """The pieces of `source`, which workers make. To be closed always.

    Args:
        source: answers a request.
        submit: hands a job to the workers.
        ended: as of `Pump`; tells the story.
        story: of that request.
        is_cut: whether it is the server that cancels this, and not the sender.
        whole: whether what the reader has taken counts for nothing until all is taken.

    Raises:
        InferenceError: what `source` raised; CANCELLED or DEADLINE_EXCEEDED when the request was lost meanwhile;
            MODEL_NOT_READY when the server waits no longer, or what was told cannot be kept.
    """
    pump = Pump(source, submit, ended, story.interest, whole=whole)
    pump.start()
    try:
        with watched(story, pump.lose):
            while (piece := await pump.take()) is not None:
                yield piece
            await kept(story)
    except asyncio.CancelledError:
        if not is_cut(story):
            raise
        story.interest.cut()
        raise stopping() from None
    finally:
        await pump.leave()


class Pump(Generic[PieceT]):
    """Runs a generator in worker threads for one coroutine, which it is never more than `room` pieces ahead of.

    A reader who is slow keeps no worker waiting: without room the pump leaves its worker, and asks for one again once
    there is. A reader who leaves stops the generator at its next piece, or at once while no worker is at it.

    Args:
        source: raises nothing but `InferenceError`; is run by one thread at a time, and closed at the end.
        submit: hands a job to the workers; raises RuntimeError when they take none any more.
        ended: told once that the generator has come to its end, before the reader is: with the error that ended it, or
            with None, also when the reader has left behind its first piece.
        interest: on whose behalf the generator is run.
        room: so many pieces may wait for the reader.
        whole: whether what the reader has taken counts for nothing until all is taken.
    """

    def __init__(
        self,
        source: Generator[PieceT, Any, Any],
        submit: Callable[[Callable[[], None]], Future[None]],
        ended: Callable[[InferenceError | None], None],
        interest: Interest | None = None,
        room: int = 32,
        *,
        whole: bool = False,
    ) -> None:
        self._source = source
        self._submit = submit
        self._ended = ended
        self._interest = interest or Interest()
        self._room = room
        self._whole = whole
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._lock = threading.Lock()
        self._waiting: deque[PieceT] = deque()
        self._job: Future[None] | None = None
        self._any = False
        self._loss: InferenceError | None = None
        # Whoever clears `_parked` owns the generator: the reader, when it asks for a worker or leaves.
        self._parked = False
        self._left = False
        self._over = False
        self._error: InferenceError | None = None

    def start(self) -> None:
        """Ask for a worker. To be called once, before all else."""
        self._hire()

    async def take(self) -> PieceT | None:
        """The next piece, None behind the last.

        Raises:
            InferenceError: what ended the generator, once the pieces before it are taken; what `lose` was told.
        """
        while True:
            self._news.clear()
            with self._lock:
                piece = self._waiting.popleft() if self._waiting else None
                over = self._over and piece is None
                loss = self._loss if piece is None and not over else None
                resumed = self._parked and len(self._waiting) <= self._room // 2
                if resumed:
                    self._parked = False
            if resumed:
                self._hire()
            if piece is not None:
                return piece
            if over:
                if self._error is not None:
                    raise self._error
                return None
            if loss is not None:
                raise loss
            await self._news.wait()

    def lose(self, gone: bool) -> None:
        """Nobody waits any more for what the reader passes on: they are `gone`, or the time is over.

        The reader is told when it asks for more. One that does not, because its own reader is stuck, keeps nothing.
        """
        with self._lock:
            if not gone:
                self._interest.expire()
            elif self._whole or not self._any:
                self._interest.leave()
            self._loss = self._interest.loss or InferenceError(ErrorKind.CANCELLED, "The sender left")
            owned, self._parked = self._parked, False
        self._news.set()
        if owned:
            job = partial(self._finish, self._interest.loss, self._loss)
            threading.Thread(target=job, name="leaving", daemon=True).start()

    async def leave(self) -> None:
        """Take no more. To be called always."""
        with self._lock:
            self._left = True
            if self._whole or not self._any:
                self._interest.leave()
            self._waiting.clear()
            owned, self._parked = self._parked, False
        if owned:
            # What the model does at the end may take its time, and the event loop has none.
            await in_daemon_thread(lambda: self._finish(self._interest.loss), "leaving")
        elif self._job is not None:
            self._job.cancel()

    def _hire(self) -> None:
        try:
            self._job = self._submit(self._work)
        except RuntimeError:
            self._finish(stopping())
        else:
            self._job.add_done_callback(self._dismissed)

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
                    self._any = True
                    self._waiting.append(piece)
                parked = not self._left and len(self._waiting) >= self._room
                self._parked = parked
            self._notify()
            if parked:
                return None

    def _dismissed(self, job: Future[None]) -> None:
        """A job that no worker ever took up, because the reader left or the workers were sent home."""
        if job.cancelled():
            with self._lock:
                left = self._left
            self._finish(self._interest.loss if left else stopping())

    def _finish(self, error: InferenceError | None, shown: InferenceError | None = None) -> None:
        try:
            self._source.close()
        except BaseException:  # an order to stop among them, which is nobody's but the model's
            _logger.exception("a stream could not be closed")
        try:
            self._ended(error)
        finally:
            with self._lock:
                self._over, self._error = True, error or shown
            self._notify()

    def _notify(self) -> None:
        # The loop is gone when the server has stopped meanwhile; so is the reader.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._news.set)
