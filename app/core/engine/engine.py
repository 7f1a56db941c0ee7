"""Answer the inference requests of every protocol."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from app.core.engine.cancellation import stopping_error
from app.core.engine.events import BatchedObservers
from app.core.engine.executor import Answer, Executor
from app.core.engine.models.readiness import Readiness
from app.core.engine.models.repository import Repository
from app.core.engine.provided import Provided
from app.core.engine.request_context import RequestContext
from app.core.engine.request_job import EndWatch, RequestJob, wait_recorded
from app.core.engine.scheduling.admission import Admission, QueueLimits
from app.core.engine.scheduling.background import Background
from app.core.engine.scheduling.thread_pool import ThreadPool
from app.core.engine.streams.bridge import StreamBridge
from app.core.engine.streams.text_stream import Chunk
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse

if TYPE_CHECKING:
    from app.core.hooks import Parts

WireT = TypeVar("WireT")

_DEFAULT_QUEUE_LIMITS = QueueLimits()
_POLL_SECONDS = 0.01


class Lane(msgspec.Struct, frozen=True, eq=False):
    """Worker threads, and limits on the requests that wait for them.

    Long requests have a lane of their own, so that they do not delay others; all models share its queue.
    """

    pool: ThreadPool
    admission: Admission


class Engine(Readiness):
    """Answer inference requests with the models of the registry.

    Args:
        repository: the models on disk, and the registry that they are loaded into.
        limits: limits on one request.
        workers: threads that decode, run and encode. Models and OpenCV use one thread each, so that one worker per core
            is the right number.
        queue_limits: limits on waiting requests; requests beyond them are rejected at once.

    Attributes:
        admission: counts the inferences that run, wait, arrive or stream in this lane.
        extensions: names of extensions of the Open Inference Protocol that plugins add.
        provided: what the plugins of the server give each other.
        batched_observers: receive every inference.
        draining: whether long requests should finish early, because the server stops.
    """

    def __init__(
        self,
        repository: Repository,
        limits: Limits,
        workers: int,
        queue_limits: QueueLimits = _DEFAULT_QUEUE_LIMITS,
    ) -> None:
        super().__init__(repository.registry)
        self.repository = repository
        self.limits = limits
        self.extensions: list[str] = []
        self.provided = Provided()
        self.draining = self._aborting = self._closed = False
        self.batched_observers = BatchedObservers()
        self._executor = Executor(self.registry, limits, self.batched_observers)
        registry, pool = self.registry, ThreadPool(workers, "inference")
        self.admission = Admission(
            workers, queue_limits, registry.max_waiting, lambda: registry.only_model is None, pool.expected_wait
        )
        self._queue_limits = queue_limits
        self._main_lane = Lane(pool, self.admission)
        self._lanes = {"inference": self._main_lane}

    def attach(self, parts: "Parts") -> None:
        """Add observers, annotators, the record sink and extensions of a plugin. Call this before the first request.

        Raise ValueError if there is a record sink already.
        """
        self.batched_observers.attach(parts.observers, parts.batched_observers)
        if parts.record_sink is not None:
            if self._record_sink is not None:
                raise ValueError("Only one plugin can record inferences")
            self._record_sink = parts.record_sink
        self._executor.attach(parts.annotators, parts.record_sink)
        self.extensions += parts.extensions

    @property
    def busy(self) -> bool:
        """Return whether any request runs or waits."""
        return any(lane.admission.in_flight for lane in self._lanes.values())

    async def handle(
        self,
        context: RequestContext,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT] | Callable[[InferenceResponse, Any], WireT],
        lane: Lane | None = None,
        answer: Answer | None = None,
    ) -> WireT:
        """Answer one request. A single job in a worker thread does all the work, from `decode` to `encode`.

        Raise InferenceError for every failure. No other exception except cancellation is raised.

        Args:
            context: the origin of the request.
            model_name: the requested model; empty if only the body has its name.
            decode: decode the body.
            encode: encode the response; its second argument is what `answer` adds.
            lane: the lane in which it waits; by default with the other inferences.
            answer: answers it instead of a plain prediction.
        """
        lane, executor = lane or self._main_lane, self._executor
        queue = self._admit(context, model_name, lane)
        work = partial(executor.handle, context, decode, encode, answer)
        release = partial(lane.admission.release, queue, context)
        job = RequestJob(context, queue, work, executor.report, lane.pool, release)
        try:
            return await job.done
        except asyncio.CancelledError:
            # gRPC cancels the handler when a client disconnects, and the server when it must stop.
            aborted = self._is_aborted(context)
            if aborted:
                context.abort()
            job.cancel()
            if aborted:
                raise stopping_error() from None
            raise

    async def stream_outputs(
        self,
        context: RequestContext,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT] | None,
        encode_chunk: Callable[[Chunk], WireT | None],
    ) -> AsyncGenerator[WireT]:
        """Stream the answer to one request: text in chunks, other tasks sample by sample.

        Nothing happens before the first output is requested. A worker runs a few outputs ahead of the reader. Close the
        generator (`contextlib.aclosing`) when the client disconnects: the worker then stops at the next token or
        sample. Observers receive one event, at the end. A client that disconnects after the first output is no failure.
        The worker calls `encode` with a response of one sample; None answers with text only. It calls `encode_chunk`
        with a chunk of text, which is skipped if the result is None. Raise InferenceError for every failure: instead of
        the first output if the request is invalid, later if the model fails while it generates.

        Yields:
            The results of `encode` or `encode_chunk`, in the order of the inputs.
        """
        queue = self._admit(context, model_name, self._main_lane)

        def on_end(error: InferenceError | None) -> None:
            context.failure = context.failure or error
            try:
                self._executor.report(context)
            finally:
                self.admission.release(queue, context)

        source = self._executor.stream(context, decode, encode_chunk, encode)
        bridge = StreamBridge(source, queue, self._main_lane.pool, on_end, context)
        try:
            with closing(EndWatch(context, lambda disconnected: bridge.cancel(disconnected=disconnected))):
                while (item := await bridge.next_item()) is not None:
                    yield item
                await wait_recorded(context)
        except asyncio.CancelledError:
            if not self._is_aborted(context):
                raise
            context.abort()
            raise stopping_error() from None
        finally:
            await bridge.close()

    def lane(self, name: str, workers: int = 1) -> Lane:
        """Return the lane called `name`, in the singular, such as ``explanation``.

        The first call creates it with `workers` threads of low priority. Twice as many requests may wait for them.
        """
        lane = self._lanes.get(name)
        if lane is None:
            pool = ThreadPool(workers, name, low_priority=True)
            limits = QueueLimits(max_waiting=2 * workers, request_timeout=self._queue_limits.request_timeout)
            clients = self.admission.clients
            admission = Admission(
                workers, limits, lambda _: None, lambda: False, pool.expected_wait, clients, f"{name}s"
            )
            lane = self._lanes[name] = Lane(pool, admission)
            if self._closed:
                pool.close()
        return lane

    def background(
        self, name: str, max_waiting: int, max_bytes: float = math.inf, *, when_idle: bool = False, **options: Any
    ) -> Background:
        """Return a lane for work beside requests, as `Background`, which the caller closes.

        With `when_idle`, its jobs start only while a worker of inferences is idle.
        """
        may_run = self.admission.has_idle_worker if when_idle else None
        return Background(name, max_waiting, max_bytes, may_run=may_run, **options)

    def overload(self, model_name: str | None) -> InferenceError | None:
        """Return the error of one more request that would be rejected now, before its body is read; None otherwise.

        Without a model name, only the limits that are the same for all models are checked.
        """
        queue = self.registry.only_model if model_name is None else self.registry.owner(model_name)
        return self.admission.overload(queue)

    def report_rejected(self, context: RequestContext, error: InferenceError, model_name: str = "") -> InferenceError:
        """Record and report a request that was rejected before its work. Return `error` for the caller to raise."""
        context.model_name = context.model_name or model_name
        context.arrived, context.timestamp = time.perf_counter_ns(), time.time_ns()
        context.failure = error
        self._executor.unfinished.add(context)
        self._executor.report(context)
        return error

    def report_rejected_unread(self, context: RequestContext, error: InferenceError) -> None:
        """Report requests that were rejected before they were read, without recording them."""
        context.failure = error
        context.finish()
        self.batched_observers.add(context)

    def start_drain(self) -> None:
        """Start to drain: report not ready, and let lanes finish early, such as with the samples that they have.

        HTTP requests that are cancelled from now on are answered with MODEL_NOT_READY.
        """
        self.mark_not_ready()
        self.draining = True

    def abort_calls(self) -> None:
        """Answer requests that are cancelled from now on with MODEL_NOT_READY, those over gRPC too."""
        self._aborting = True

    def close(self) -> None:
        """Accept no more requests, drop those that wait, and let lanes finish early."""
        self.draining = self._closed = True
        for lane in self._lanes.values():
            lane.pool.close()

    async def wait_drained(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the requests in flight, then report those that are left as failed."""
        deadline = time.monotonic() + timeout
        while self.busy and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        for context in tuple(self._executor.unfinished):
            context.failure = context.failure or stopping_error()
            self._executor.report(context)

    def _admit(self, context: RequestContext, model_name: str, lane: Lane) -> str:
        """Admit a request; return the queue in which it waits: its model's, or the only one of a lane of long requests.

        Raise InferenceError if a limit is reached or its deadline has passed.
        """
        context.model_name = context.model_name or model_name
        context.arrived, context.timestamp = time.perf_counter_ns(), time.time_ns()
        is_long = lane is not self._main_lane
        queue = "" if is_long else self.registry.owner(model_name)
        try:
            # Long requests finish early at their deadline, so that they may wait for it.
            lane.admission.acquire(context, queue, until_deadline=is_long)
        except InferenceError as error:
            raise self.report_rejected(context, error, model_name) from None
        self._executor.unfinished.add(context)
        return queue

    def _is_aborted(self, context: RequestContext) -> bool:
        """Return whether shutdown cancelled the call: over HTTP (`disconnected` is set), nothing else cancels it."""
        return self._aborting or (self.draining and context.disconnected is not None)
