"""Answer the inference requests of every protocol."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from app.core.engine.cancellation import stopping_error
from app.core.engine.events import BatchedObservers, InferenceObserver, OutputAnnotator, RecordSink
from app.core.engine.executor import Executor, Explanations
from app.core.engine.models.readiness import Readiness
from app.core.engine.models.repository import Repository
from app.core.engine.request_context import RequestContext
from app.core.engine.request_job import DeadlineTimer, DisconnectWatch, RequestJob, wait_recorded
from app.core.engine.scheduling.admission import Admission, ClientLimit, QueueLimits
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
_WAITING_EXPLANATIONS_PER_WORKER = 2
_POLL_SECONDS = 0.01
_IN_USE_SECONDS = 0.1


class Engine(Readiness):
    """Answer inference requests with the models of the registry.

    Args:
        repository: the models on disk, and the registry that they are loaded into.
        observers: receive every inference at once.
        batched_observers: receive every inference within a fraction of a second, without its inputs and predictions.
        limits: limits on one request.
        workers: threads that decode, run and encode. Models and OpenCV use one thread each, so that one worker per core
            is the right number.
        queue_limits: limits on waiting requests; requests beyond them are refused at once.
        explain_workers: additional threads, with a lower priority, for explanations; twice as many explanations wait.
        annotators: add output parameters to responses.
        record_sink: records every inference before its answer is sent.

    Attributes:
        extensions: names of extensions of the Open Inference Protocol that plugins add.
        track_arrival: count a request whose body is arriving, for `overload`; call the result when it is complete.
        has_idle_worker: return whether a worker is left for a request after all that run, wait or arrive.
        count_stream: count a client's stream while it is open, in addition to its requests, as `ClientLimit.slot`.
        report_refused_unread: report requests that were refused before they were read, without recording them.
        infer: answer one decoded request in the calling thread, without reporting it. For use inside a process.
    """

    def __init__(
        self,
        repository: Repository,
        observers: Sequence[InferenceObserver],
        limits: Limits,
        workers: int,
        queue_limits: QueueLimits = _DEFAULT_QUEUE_LIMITS,
        explain_workers: int = 1,
        annotators: Sequence[OutputAnnotator] = (),
        record_sink: RecordSink | None = None,
        batched_observers: Sequence[InferenceObserver] = (),
    ) -> None:
        super().__init__(repository.registry, record_sink)
        self.repository = repository
        self.limits = limits
        self.extensions: list[str] = []
        self._draining = self._aborting = False
        self.batched_observers = BatchedObservers(observers, batched_observers)
        self._executor = Executor(self.registry, limits, self.batched_observers, annotators, record_sink)
        registry, clients = self.registry, ClientLimit(queue_limits.max_each_client)
        self._thread_pool = pool = ThreadPool(workers, "inference")
        self._admission = Admission(
            workers, queue_limits, registry.max_waiting, lambda: registry.multi_model, pool.expected_wait, clients
        )
        explanation_limits = QueueLimits(
            max_waiting=_WAITING_EXPLANATIONS_PER_WORKER * explain_workers, request_timeout=queue_limits.request_timeout
        )
        self._explanation_pool = pool = ThreadPool(explain_workers, "explanation", low_priority=True)
        self._explanations = Admission(
            explain_workers,
            explanation_limits,
            lambda _: None,
            lambda: False,
            pool.expected_wait,
            clients,
            "explanations",
        )
        self.track_arrival = self._admission.track_arrival
        self.has_idle_worker = self._admission.has_idle_worker
        self.count_stream = clients.slot
        self.report_refused_unread = self._executor.report_refused_unread
        self.infer = self._executor.predict

    def attach(self, parts: "Parts") -> None:
        """Add observers, annotators, the record sink and extensions of a plugin. Call this before the first request.

        Raises:
            ValueError: if there is a record sink already.
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
        return self._admission.in_flight + self._explanations.in_flight > 0

    @property
    def is_in_use(self) -> bool:
        """Return whether it is busy or was in the last 0.1 s, so that short gaps between requests count as use."""
        return self.busy or time.monotonic() - self._admission.last_admitted < _IN_USE_SECONDS

    @property
    def in_flight(self) -> int:
        """Return the number of requests that run or wait."""
        return self._admission.in_flight

    @property
    def waiting(self) -> int:
        """Return the number of requests in flight beyond those that the workers can run."""
        return self._admission.waiting

    async def handle(
        self,
        context: RequestContext,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
    ) -> WireT:
        """Answer one request. A single job in a worker thread does all the work, from `decode` to `encode`.

        Args:
            context: the origin of the request.
            model_name: the requested model; empty if only the body has its name.
            decode: decode the body.
            encode: encode the response.

        Raises:
            InferenceError: for every failure. No other exception except cancellation is raised.
        """
        done = asyncio.get_running_loop().create_future()
        job = self.submit(context, model_name, decode, encode, partial(_set_done, done))
        return await self._wait(job, done)

    def submit(
        self,
        context: RequestContext,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
        on_done: Callable[[RequestJob[WireT]], None],
    ) -> RequestJob[WireT]:
        """Start to answer one request as `handle` does, and call `on_done` with the job in the event loop at its end.

        Call `RequestJob.cancel` if the client disconnects.

        Raises:
            InferenceError: if the request is refused.
        """
        queue = self._admit(context, model_name)
        work = partial(self._executor.handle, context, decode, encode)
        release = partial(self._admission.release, queue, context)
        return RequestJob(context, queue, work, on_done, self._executor.report, self._thread_pool, release)

    def stream_text(
        self,
        context: RequestContext,
        model_name: str,
        decode: Callable[[], InferenceRequest],
    ) -> AsyncGenerator[Chunk]:
        """Stream the answer as `stream_outputs`, in chunks of text, with a model whose `Servable.streams` is True."""
        return self.stream_outputs(context, model_name, decode, None, lambda chunk: chunk)

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
        with a chunk of text, which is skipped if the result is None.

        Yields:
            The results of `encode` or `encode_chunk`, in the order of the inputs.

        Raises:
            InferenceError: for every failure: instead of the first output if the request is invalid, later if the model
                fails while it generates.
        """
        queue = self._admit(context, model_name)

        def on_end(error: InferenceError | None) -> None:
            context.failure = context.failure or error
            try:
                self._executor.report(context)
            finally:
                self._admission.release(queue, context)

        source = self._executor.stream(context, decode, encode_chunk, encode)
        bridge = StreamBridge(source, queue, self._thread_pool, on_end, context)
        try:
            with (
                closing(DeadlineTimer(context, lambda: bridge.cancel(disconnected=False))),
                closing(DisconnectWatch(context, lambda: bridge.cancel(disconnected=True))),
            ):
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

    async def explain(
        self,
        context: RequestContext,
        model_name: str,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse, Explanations], WireT],
    ) -> WireT:
        """Answer one request, and explain the answer with saliency maps.

        Explanations take hundreds of calls of the model. They have their own workers and queue. They end early if the
        server stops or the client disconnects. The arguments are those of `handle`; the parameters of the request are
        those of the explanation, and `encode` gets the explanations by descending score.

        Raises:
            InferenceError: for every failure; UNSUPPORTED for a task that cannot be explained, OVERLOADED if too many
                explanations wait.
        """
        context.explanation = True
        queue, executor = self._admit(context, model_name), self._executor
        done = asyncio.get_running_loop().create_future()

        def should_continue() -> bool:
            return not self._draining and context.cancellation is None

        work = partial(executor.explain, context, decode, encode, should_continue)
        release = partial(self._explanations.release, queue, context)
        on_done = partial(_set_done, done)
        job = RequestJob(context, queue, work, on_done, executor.report, self._explanation_pool, release)
        return await self._wait(job, done)

    def overload(self, model_name: str | None) -> InferenceError | None:
        """Return the error of one more request that would be refused now, before its body is read; None otherwise.

        Without a model name, only the limits that are the same for all models are checked.
        """
        queue = self.registry.only_model if model_name is None else self.registry.known_name(model_name)
        return self._admission.overload(queue)

    def check_capacity(self, context: RequestContext, model_name: str) -> None:
        """Refuse a request now if it would be refused after its body is read.

        Raises:
            InferenceError: OVERLOADED.
        """
        if (error := self._admission.refusal(self.registry.known_name(model_name))) is not None:
            raise self.report_refused(context, error, model_name)

    def report_refused(self, context: RequestContext, error: InferenceError, model_name: str = "") -> InferenceError:
        """Record and report a request that was refused before its work. Return `error` for the caller to raise."""
        context.model_name = model_name
        context.arrived, context.timestamp = time.perf_counter_ns(), time.time_ns()
        context.failure = error
        self._executor.start(context)
        self._executor.report(context)
        return error

    def start_drain(self) -> None:
        """Start to drain: report not ready, and finish explanations with the samples that they have.

        HTTP requests that are cancelled from now on are answered with MODEL_NOT_READY.
        """
        self.mark_not_ready()
        self._draining = True

    def abort_calls(self) -> None:
        """Answer requests that are cancelled from now on with MODEL_NOT_READY, those over gRPC too."""
        self._aborting = True

    def close(self) -> None:
        """Accept no more requests, drop those that wait, and finish explanations with the samples that they have."""
        self._draining = True
        self._thread_pool.close()
        self._explanation_pool.close()

    async def wait_drained(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the requests in flight, then report those that are left as failed."""
        deadline = time.monotonic() + timeout
        while self.busy and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        self._executor.fail_unfinished(stopping_error())

    def _admit(self, context: RequestContext, model_name: str) -> str:
        """Admit a request; return the queue in which it waits: its model's, or the one of all explanations.

        Raises:
            InferenceError: if a limit is reached or its deadline has passed.
        """
        context.model_name = model_name
        context.arrived, context.timestamp = time.perf_counter_ns(), time.time_ns()
        if context.explanation:
            queue, admission = "", self._explanations
        else:
            queue, admission = self.registry.known_name(model_name), self._admission
        try:
            context.deadline = deadline = admission.deadline(context)
            # An explanation takes less time if it has waited.
            context.max_queue_seconds = admission.acquire(context, queue, None if context.explanation else deadline)
        except InferenceError as error:
            raise self.report_refused(context, error, model_name) from None
        self._executor.start(context)
        return queue

    async def _wait(self, job: RequestJob[WireT], done: asyncio.Future[None]) -> WireT:
        """Return the result of a job when it is done; cancel it if the client leaves, or with the coroutine.

        Raises:
            InferenceError: for every failure.
        """
        watch = DisconnectWatch(job.context, job.cancel)
        try:
            await done
        except asyncio.CancelledError:
            # gRPC cancels the handler when a client disconnects, and the server when it must stop.
            aborted = self._is_aborted(job.context)
            if aborted:
                job.context.abort()
            job.cancel()
            if aborted:
                raise stopping_error() from None
            raise
        finally:
            watch.close()
        return job.result()

    def _is_aborted(self, context: RequestContext) -> bool:
        """Return whether shutdown cancelled the call: over HTTP (`disconnected` is set), nothing else cancels it."""
        return self._aborting or (self._draining and context.disconnected is not None)


def _set_done(done: asyncio.Future[None], _: object) -> None:
    # It is cancelled with the coroutine that waited for it.
    if not done.done():
        done.set_result(None)
