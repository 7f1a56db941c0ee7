"""The one place where a request meets a model, whatever wire it came over."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import TypeVar

from app.engine.admission import Admission, Bounds
from app.engine.answering import Answering, Explanations
from app.engine.awaiting import awaited, kept
from app.engine.events import Addition, Caller, InferenceObserver, Keeper
from app.engine.explain import ExplanationWorkers
from app.engine.interest import stopping
from app.engine.pump import pumped
from app.engine.readiness import Readiness
from app.engine.repository import Repository
from app.engine.statistics import Statistics
from app.engine.story import Story
from app.engine.streaming import Piece
from app.engine.trends import Trends
from app.engine.workers import Workers
from tasks.exchange.error import InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse

__all__ = ("Engine",)

WireT = TypeVar("WireT")
PartT = TypeVar("PartT")

_BOUNDS = Bounds()
_LOOK = 0.01


class Engine(Readiness):
    """Answers inference requests with the registry's models.

    Args:
        repository: the models on disk, and the registry they are loaded into.
        observers: told of every inference.
        limits: how much of one request is worked on.
        workers: threads that decode, run and encode; the models and OpenCV are held to one thread each, so that the
            number of cores is the right number of workers.
        bounds: how many requests may wait for a worker, and how long; others are refused at once.
        explain_workers: threads that make explanations, beside the others and at a lower priority.
        clock: tells the trends the time, in seconds from any beginning.
        additions: what else is said about answers.
        keeper: keeps every inference; no answer leaves, or ends, before it is kept.
    """

    def __init__(
        self,
        repository: Repository,
        observers: Sequence[InferenceObserver],
        limits: Limits,
        workers: int,
        bounds: Bounds = _BOUNDS,
        explain_workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
        additions: Sequence[Addition] = (),
        keeper: Keeper | None = None,
    ) -> None:
        super().__init__(repository.registry, keeper)
        self.repository = repository
        self.limits = limits
        self.statistics = Statistics()
        self.trends = Trends(self.registry.knows, clock)
        self._ending = False
        counting = (self.statistics, self.trends)
        self._answering = Answering(self.registry, limits, observers, counting, additions, keeper)
        self._workers = Workers(workers, "inference")
        self._explanations = ExplanationWorkers(explain_workers)
        self._admission = Admission(
            workers,
            bounds,
            own_bound=self.registry.own_bound,
            several=lambda: self.registry.several,
            expected_wait=self._workers.expected_wait,
        )

    @property
    def busy(self) -> bool:
        """Whether any request is being answered or waits."""
        return self._admission.in_hand + self._explanations.taken > 0

    @property
    def in_flight(self) -> int:
        """Requests that are being answered or wait."""
        return self._admission.in_hand

    @property
    def waiting(self) -> int:
        """Those of them that find all workers taken."""
        return self._admission.waiting

    async def exchange(
        self,
        caller: Caller,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
    ) -> WireT:
        """Answer one wire request. All the work, from `decode` to `encode`, is done in one hop to a worker thread.

        Args:
            caller: where the request comes from.
            model_name: the model it is addressed to; empty where only its body says so.
            decode: reads it.
            encode: writes the response.

        Raises:
            InferenceError: whatever went wrong; nothing else leaves this method but cancellation.
        """
        story, turn = self._admitted(caller, model_name)
        try:
            work = self._workers.submit_for(turn, partial(self._answering.exchange, story, decode, encode))
        except RuntimeError:
            self._admission.leave(turn, caller)
            story.error = stopping()
            self._answering.tell(story)
            raise story.error from None
        # The place is kept until the worker is done, even when the sender has gone: the worker is what is scarce.
        work.add_done_callback(lambda _: self._admission.leave(turn, caller))
        answer = await awaited(work, story, self._answering.tell, self._is_cut)
        await kept(story)
        return answer

    async def stream(
        self, caller: Caller, model_name: str, decode: Callable[[], InferenceRequest], *, whole: bool = False
    ) -> AsyncGenerator[Piece]:
        """Answer one wire request piece by piece, with a model that `Servable.streams`.

        Nothing happens before the first piece is asked for. A worker makes the pieces, a few ahead of whoever reads
        them, and is free again at the next token when the generator is closed: close it (`contextlib.aclosing`) when
        the sender is gone. One request is observed once, at its end; that its sender left is no failure of it, unless
        there was no piece to be had by then.

        Args:
            caller: where the request comes from.
            model_name: the model it is addressed to; empty where only its body says so.
            decode: reads it, in the worker.
            whole: whether the sender is told nothing before the last piece, so that one who leaves was told nothing.

        Yields:
            The pieces of every answer, one answer after the other.

        Raises:
            InferenceError: whatever went wrong; in place of the first piece for all that can be known by then, later
                when the model fails on the way.
        """
        story, turn = self._admitted(caller, model_name)
        async with aclosing(self._pumped(story, turn, self._answering.pieces(story, decode), whole=whole)) as pieces:
            async for piece in pieces:
                yield piece

    async def parts(
        self,
        caller: Caller,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
        encode_piece: Callable[[Piece], WireT | None],
    ) -> AsyncGenerator[WireT]:
        """Answer one wire request part by part with any model: texts as `stream`, all else datum by datum.

        Each datum is run, and can be read, before the next one is begun. All that `stream` says holds here too.

        Args:
            caller: where the request comes from.
            model_name: the model it is addressed to; empty where only its body says so.
            decode: reads it, in the worker.
            encode: writes a response of one output of one datum, in the worker.
            encode_piece: writes a piece of text, in the worker; one that it makes None of is passed over.

        Yields:
            What `encode` or `encode_piece` wrote, in the order of the inputs.

        Raises:
            InferenceError: as `stream`.
        """
        story, turn = self._admitted(caller, model_name)
        source = self._answering.parts(story, decode, encode, encode_piece)
        async with aclosing(self._pumped(story, turn, source)) as parts:
            async for part in parts:
                yield part

    async def explain(
        self,
        caller: Caller,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse, Explanations], WireT],
    ) -> WireT:
        """Answer one wire request, and say where in its images the reasons for the answer lie.

        Explanations take hundreds of calls of the model. They have workers and waiting places of their own. They end
        early when the server stops or the sender leaves: cancel the coroutine then.

        Args:
            caller: where the request comes from.
            model_name: the model it is addressed to; empty where only its body says so.
            decode: reads it; its own parameters are `ExplanationParameters`.
            encode: writes the response and its explanations, best first.

        Raises:
            InferenceError: whatever went wrong; UNSUPPORTED for a model whose answers cannot be explained, OVERLOADED
                when too many explanations wait.
        """
        try:
            deadline = self._admission.deadline(caller)
            self._admission.join(caller)
        except InferenceError as error:
            raise self._answering.refused(caller, error, model_name, explanation=True) from None
        story = self._answering.begun(caller, model_name, deadline, explanation=True)
        job = partial(self._answering.explain, story, decode, encode)
        try:
            answer = await self._explanations.run_for(story, job, self._answering.tell)
        finally:
            self._admission.part(caller)
        await kept(story)
        return answer

    def counted(self, caller: Caller) -> AbstractContextManager[None]:
        """A stream of a client's, for as long as it is open; each request of it counts besides.

        Raises:
            InferenceError: OVERLOADED, on entering, when the client has enough in hand.
        """
        return self._admission.joined(caller)

    def refused(self, caller: Caller, error: InferenceError, model_name: str = "") -> InferenceError:
        """Tell observers of a request that was refused before it was read; gives `error` back, to be raised."""
        return self._answering.refused(caller, error, model_name)

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Answer one neutral request in the calling thread, observing nothing: the in-process way in.

        Raises:
            InferenceError: whatever went wrong.
        """
        return self._answering.answer(request)

    def hurry(self) -> None:
        """The server stops: have explanations make do with the samples that they have.

        Requests over HTTP that are cancelled from now on are answered MODEL_NOT_READY.
        """
        self.retire()
        self._ending = True
        self._explanations.hurry()

    def close(self) -> None:
        """Take no more requests, and drop those that wait."""
        self._workers.close()
        self._explanations.close()

    async def ended(self, patience: float) -> None:
        """Wait for those in hand, for `patience` seconds at the longest; of the others it is told that nobody did."""
        until = time.monotonic() + patience
        while self.busy and time.monotonic() < until:
            await asyncio.sleep(_LOOK)
        self._answering.abandon(stopping())

    def _admitted(self, caller: Caller, model_name: str) -> tuple[Story, str]:
        """The story of a request that has got a place, and the model in whose turn it waits.

        Raises:
            InferenceError: when there is no place for it, or no time.
        """
        # A name that a sender made up is not to be remembered.
        turn = model_name if self.registry.knows(model_name) else ""
        try:
            deadline = self._admission.deadline(caller)
            self._admission.admit(caller, turn, deadline)
        except InferenceError as error:
            raise self.refused(caller, error, model_name) from None
        return self._answering.begun(caller, model_name, deadline), turn

    def _pumped(
        self, story: Story, turn: str, source: Generator[PartT], *, whole: bool = False
    ) -> AsyncGenerator[PartT]:
        def ended(error: InferenceError | None) -> None:
            story.error = story.error or error
            try:
                self._answering.tell(story)
            finally:
                self._admission.leave(turn, story.caller)

        return pumped(source, partial(self._workers.submit_for, turn), ended, story, self._is_cut, whole=whole)

    def _is_cut(self, story: Story) -> bool:
        """Whether a call that is cancelled is so because the server stops: over HTTP nothing else cancels one."""
        return self._ending and story.caller.gone is not None
