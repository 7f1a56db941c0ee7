"""Answers in text that are told while they are made: what they consist of, and how a coroutine reads them."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from app.engine.daemon import in_daemon_thread
from app.engine.interest import Interest, check_interest, on_behalf_of, stopping
from app.engine.reasons import told
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.response import Prediction
from tasks.task import TextPiece

__all__ = ("Piece", "Place", "Pump", "TextStream")

PieceT = TypeVar("PieceT")

_logger = logging.getLogger(__name__)


class Place(msgspec.Struct, frozen=True, eq=False):
    """Where in a request an image stands.

    Attributes:
        input: the name of the input.
        input_index: which input of the request that is.
        image: which image of that input.
        item: what the model is shown of it.
        parameters: the input's own parameters as they came.
    """

    input: str
    input_index: int
    image: int
    item: Any
    parameters: Mapping[str, object]


class Piece(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A part of the answer to one prompt, put to one image. Joined, an answer's texts are what `infer` answers.

    Answers come one after the other, in the order of the inputs, their images, and the prompts put to each.

    Attributes:
        id: the request's.
        model_name: the model that answers.
        model_version: the version of it.
        input: the name of the input, which an output of an inference would take over.
        image: which image of that input.
        prompt: which prompt put to that image.
        text: may be empty.
        final: whether the answer ends with this piece. Every answer has one such piece.
        parameters: of the output, the same on every piece: the echo of the input's metadata.
    """

    id: str
    model_name: str
    model_version: str
    input: str
    image: int
    prompt: int
    text: str
    final: bool
    parameters: Mapping[str, object]


class TextStream:
    """What a model says to one request, and an account of the time it takes.

    Args:
        pieces: of all answers; closed at the end.
        places: where the images stand, by `TextPiece.item`.
        decode: nanoseconds that reading the request took.
        gather: makes the prediction of an item's whole answers, by prompt.
    """

    def __init__(
        self,
        pieces: Generator[TextPiece],
        places: Sequence[Place],
        decode: int,
        gather: Callable[[Any, Sequence[str]], Prediction],
    ) -> None:
        self.places = places
        self.decode = decode
        self.model = 0
        self._pieces = pieces
        self._gather = gather
        self._said: dict[int, list[list[str]]] = {}

    def gathered(self) -> Sequence[tuple[Place, Prediction]]:
        """What was said so far, as predictions, with the places that they answer."""
        return [
            (self.places[item], self._gather(self.places[item].item, ["".join(each) for each in prompts]))
            for item, prompts in self._said.items()
        ]

    def __iter__(self) -> Iterator[TextPiece]:
        """The pieces.

        Raises:
            InferenceError: MODEL_FAILED for whatever the model raises, but an `InferenceError` of its own.
        """
        try:
            while True:
                piece = self._next()
                if piece is None:
                    return
                self._keep(piece)
                yield piece
        finally:
            self._pieces.close()

    def _next(self) -> TextPiece | None:
        began = time.perf_counter_ns()
        try:
            return next(self._pieces, None)
        except InferenceError:
            raise
        except BaseException as error:
            # As for an answer as a whole: no order to stop of a model's is obeyed.
            raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: {told(error)}") from error
        finally:
            self.model += time.perf_counter_ns() - began

    def _keep(self, piece: TextPiece) -> None:
        prompts = self._said.setdefault(piece.item, [])
        while len(prompts) <= piece.prompt:
            prompts.append([])
        prompts[piece.prompt].append(piece.text)


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
        except Exception:
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
