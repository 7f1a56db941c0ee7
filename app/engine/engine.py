"""Answer the inference requests of every protocol."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import TypeVar

from app.engine.admission import Admission, Bounds, Excess
from app.engine.answering import Executor, Explanations
from app.engine.awaiting import awaited, wait_recorded
from app.engine.events import InferenceObserver, OutputAnnotator, RecordSink, RequestInfo
from app.engine.explain import ExplanationWorkers
from app.engine.interest import stopping
from app.engine.pump import pumped
from app.engine.readiness import Readiness
from app.engine.repository import Repository
from app.engine.statistics import Statistics
from app.engine.story import RequestContext
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
_POLL_SECONDS = 0.01
_IN_USE_SECONDS = 0.1


class Engine(Readiness):
    """Answer inference requests with the models of the registry.

    Args:
        repository: the models on disk, and the registry that they are loaded into.
        observers: receive the event of every inference.
        limits: limits on one request.
        workers: threads that decode, run and encode. Models and OpenCV use one thread each, so that one worker per core
            is the right number.
        bounds: limits on waiting requests; requests beyond them are refused at once.
        explain_workers: additional threads, with a lower priority, for explanations.
        clock: monotonic time in seconds, for the trends.
        additions: add output parameters to responses.
        keeper: records every inference before its answer is sent.
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
        additions: Sequence[OutputAnnotator] = (),
        keeper: RecordSink | None = None,
    ) -> None:
        super().__init__(repository.registry, keeper)
        self.repository = repository
        self.limits = limits
        self.statistics = Statistics()
        self.trends = Trends(self.registry.knows, clock)
        self._ending = False
        counting = (self.statistics, self.trends)
        self._answering = Executor(self.registry, limits, observers, counting, additions, keeper)
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
        """Return whether any request runs or waits."""
        return self._admission.in_hand + self._explanations.taken > 0

    @property
    def is_in_use(self) -> bool:
        """Whether it is busy or was a moment ago: between two requests of the same clients it still is."""
        return self.busy or time.monotonic() - self._admission.last_admitted < _IN_USE_SECONDS

    @property
    def in_flight(self) -> int:
        """Return the number of requests that run or wait."""
        return self._admission.in_hand

    @property
    def waiting(self) -> int:
        """Return the number of requests in flight beyond those that the workers can run."""
        return self._admission.waiting

    async def exchange(
        self,
        caller: RequestInfo,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
    ) -> WireT:
        """Answer one request. A single job in a worker thread does all the work, from `decode` to `encode`.

        Args:
            caller: the origin of the request.
            model_name: the requested model; empty if only the body has its name.
            decode: decode the body.
            encode: encode the response.

        Raises:
            InferenceError: for every failure. No other exception except cancellation is raised.
        """
        story, turn = self._admitted(caller, model_name)
        try:
            work = self._workers.submit_for(turn, partial(self._answering.exchange, story, decode, encode))
        except RuntimeError:
            self._admission.leave(turn, caller)
            story.error = stopping()
            self._answering.tell(story)
            raise story.error from None
        # Count the request until its worker is free, even after the client has disconnected.
        work.add_done_callback(lambda _: self._admission.leave(turn, caller))
        answer = await awaited(work, story, self._answering.tell, self._is_cut)
        await wait_recorded(story)
        return answer

    async def stream(
        self, caller: RequestInfo, model_name: str, decode: Callable[[], InferenceRequest], *, whole: bool = False
    ) -> AsyncGenerator[Piece]:
        """Stream the answer to one request as chunks of text, with a model that `Servable.streams`.

        Nothing happens before the first chunk is requested. A worker generates a few chunks ahead of the reader. Close
        the generator (`contextlib.aclosing`) when the client disconnects: the worker then stops at the next token.
        Observers receive one event, at the end. A client that disconnects after the first chunk is no failure.

        Args:
            caller: the origin of the request.
            model_name: the requested model; empty if only the body has its name.
            decode: decode the body, in the worker.
            whole: whether the client gets nothing before the last chunk, so that disconnecting earlier is a failure.

        Yields:
            The chunks of every answer, one answer after the other.

        Raises:
            InferenceError: for every failure: instead of the first chunk if the request is invalid, later if the model
                fails while it generates.
        """
        story, turn = self._admitted(caller, model_name)
        async with aclosing(self._pumped(story, turn, self._answering.pieces(story, decode), whole=whole)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def parts(
        self,
        caller: RequestInfo,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
        encode_piece: Callable[[Piece], WireT | None],
    ) -> AsyncGenerator[WireT]:
        """Stream the answer to one request with any model: text as in `stream`, other tasks sample by sample.

        Each sample is run, and its output can be read, before the next one starts. Cancellation works as in `stream`.

        Args:
            caller: the origin of the request.
            model_name: the requested model; empty if only the body has its name.
            decode: decode the body, in the worker.
            encode: encode a response with one output of one sample, in the worker.
            encode_piece: encode a chunk of text, in the worker; return None to skip it.

        Yields:
            The results of `encode` or `encode_piece`, in the order of the inputs.

        Raises:
            InferenceError: as `stream`.
        """
        story, turn = self._admitted(caller, model_name)
        source = self._answering.parts(story, decode, encode, encode_piece)
        async with aclosing(self._pumped(story, turn, source)) as outputs:
            async for output in outputs:
                yield output

    async def explain(
        self,
        caller: RequestInfo,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse, Explanations], WireT],
    ) -> WireT:
        """Answer one request, and explain the answer with saliency maps.

        Explanations take hundreds of calls of the model. They have their own workers and queue. They end early if the
        server stops or the client disconnects: cancel the coroutine then.

        Args:
            caller: the origin of the request.
            model_name: the requested model; empty if only the body has its name.
            decode: decode the body; the parameters of the request are `ExplanationParameters`.
            encode: encode the response and its explanations, highest score first.

        Raises:
            InferenceError: for every failure; UNSUPPORTED for a task that cannot be explained, OVERLOADED if too many
                explanations wait.
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
        await wait_recorded(story)
        return answer

    def counted(self, caller: RequestInfo) -> AbstractContextManager[None]:
        """Count a client's stream while it is open. Each request on the stream counts in addition.

        Raises:
            InferenceError: OVERLOADED, on entry, if the client has reached its limit.
        """
        return self._admission.joined(caller)

    def excess(self, model_name: str | None) -> Excess | None:
        """Return why one more request would be refused now, before its body is read; None if it would be admitted.

        Args:
            model_name: its model; None to check only the limits that are the same for all models.
        """
        turn = self.registry.only if model_name is None else self._turn(model_name)
        return self._admission.excess(turn)

    def expect(self) -> Callable[[], object]:
        """Count a request whose body is arriving, for `excess`. Call the result when the body is complete."""
        return self._admission.expect()

    def check_place(self, caller: RequestInfo, model_name: str) -> None:
        """Refuse a request now if it would be refused after its body is read.

        Raises:
            InferenceError: OVERLOADED; sets the header retry-after of the response.
        """
        try:
            self._admission.check(caller, self._turn(model_name))
        except InferenceError as error:
            raise self.refused(caller, error, model_name) from None

    def refused_unread(self, caller: RequestInfo, error: InferenceError, model_name: str, count: int) -> None:
        """Report `count` requests that were refused before they were read."""
        self._answering.refused_unread(caller, error, model_name, count)

    def refused(self, caller: RequestInfo, error: InferenceError, model_name: str = "") -> InferenceError:
        """Report a request that was refused before it was read. Returns `error`, so that the caller can raise it."""
        return self._answering.refused(caller, error, model_name)

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Answer one decoded request in the calling thread, without reporting it. For use inside a process.

        Raises:
            InferenceError: for every failure.
        """
        return self._answering.answer(request)

    def hurry(self) -> None:
        """Start to drain: report not ready, and finish explanations with the samples that they have.

        HTTP requests that are cancelled from now on are answered with MODEL_NOT_READY.
        """
        self.retire()
        self._ending = True
        self._explanations.hurry()

    def close(self) -> None:
        """Accept no more requests, and drop those that wait."""
        self._workers.close()
        self._explanations.close()

    async def ended(self, patience: float) -> None:
        """Wait up to `patience` seconds for the requests in flight, then report those that are left as failed."""
        deadline = time.monotonic() + patience
        while self.busy and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        self._answering.abandon(stopping())

    def _admitted(self, caller: RequestInfo, model_name: str) -> tuple[RequestContext, str]:
        """Admit a request; return its context and the model in whose queue it waits.

        Raises:
            InferenceError: if a limit is reached or its deadline has passed.
        """
        turn = self._turn(model_name)
        try:
            deadline = self._admission.deadline(caller)
            max_queue_seconds = self._admission.admit(caller, turn, deadline)
        except InferenceError as error:
            raise self.refused(caller, error, model_name) from None
        story = self._answering.begun(caller, model_name, deadline)
        story.max_queue_seconds = max_queue_seconds
        return story, turn

    def _turn(self, model_name: str) -> str:
        """Return the queue in which a request waits: its model's, or "" for unknown names, which clients may invent."""
        return model_name if self.registry.knows(model_name) else ""

    def _pumped(
        self, story: RequestContext, turn: str, source: Generator[PartT], *, whole: bool = False
    ) -> AsyncGenerator[PartT]:
        def ended(error: InferenceError | None) -> None:
            story.error = story.error or error
            try:
                self._answering.tell(story)
            finally:
                self._admission.leave(turn, story.caller)

        return pumped(source, partial(self._workers.submit_for, turn), ended, story, self._is_cut, whole=whole)

    def _is_cut(self, story: RequestContext) -> bool:
        """Return whether a cancelled call was cancelled by the server's shutdown: over HTTP nothing else cancels it."""
        return self._ending and story.caller.gone is not None
