"""Explain answers in a few threads with a lower priority than those of predictions."""

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import msgspec

from app.engine.cancellation import deadline_error, stopping_error
from app.engine.inference_result import InferenceResult
from app.engine.models.servable import Servable
from app.engine.request_context import RequestContext
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.parameters import read_parameters
from tasks.inference.request import InferenceRequest
from tasks.saliency.explanation import DEFAULT_SAMPLES, Explanation, ExplanationMethod, ExplanationParameters
from tasks.saliency.sampling import ExplanationTarget, explain_target, sample_count

__all__ = (
    "ExplainedResult",
    "ExplanationWorkers",
    "TimedModel",
    "explain_request",
    "explanation_deadline",
    "lower_priority",
)

T = TypeVar("T")
ExplanationT = TypeVar("ExplanationT")

_NICENESS = 10
_LOWEST_PRIORITY = 19
_MAX_WAITING_PER_WORKER = 2
_SHARE_OF_SAMPLES = 0.9


class ExplainedResult(msgspec.Struct, Generic[ExplanationT], frozen=True, kw_only=True, eq=False):
    """A result with its explanations.

    Attributes:
        result: the result; its timings include those of the explanations.
        explanations: for each output, for each of its samples, one for each explained image object or row.
        samples: masked copies of images, or copies of rows, that the model processed.
    """

    result: InferenceResult
    explanations: Sequence[Sequence[Sequence[ExplanationT]]]
    samples: int


def explain_request(
    servable: Servable,
    request: InferenceRequest,
    limits: Limits,
    should_continue: Callable[[], bool],
    remaining_seconds: float | None = None,
    on_samples: Callable[[int, int], None] = lambda _, __: None,
) -> ExplainedResult[Explanation]:
    """Answer every input of `request`, and explain the answers with saliency maps.

    The remaining time is divided evenly among the remaining images.

    Args:
        servable: the model.
        request: its parameters include those of the explanations.
        limits: limits on one request.
        should_continue: called every few samples; when it returns False, the explanations use the samples taken so far.
        remaining_seconds: seconds until the deadline of the request; the samples get most of them.
        on_samples: called with the number of masked copies that the model has just processed, and that of all.

    Raises:
        InferenceError: as `Servable.explanation_targets`; INVALID_REQUEST for invalid explanation parameters; TOO_LARGE
            for more samples than one request may take.
    """
    started = time.monotonic()
    parameters = read_parameters(ExplanationParameters, request.parameters)
    try:
        explanation_targets = servable.explanation_targets(request, limits, parameters.label, parameters.max_objects)
    except InferenceError as error:
        if error.path != "label":
            raise
        raise error.with_prefix("parameters") from None
    targets = [target for output in explanation_targets.targets for target in output]
    counts = _sample_counts(targets, parameters, limits)
    deadline = explanation_deadline(started, parameters.max_seconds, limits, remaining_seconds)
    explanations_of_targets: list[list[Explanation]] = []
    models: list[TimedModel] = []
    for remaining, target, count in zip(range(len(targets), 0, -1), targets, counts, strict=True):
        now = time.monotonic()
        until = now + (deadline - now) / remaining
        model = TimedModel(target.model, lambda samples: on_samples(samples, sum(counts)))
        timed_target = msgspec.structs.replace(target, model=model)
        explanations_of_targets.append(
            explain_target(
                timed_target, parameters, count, lambda until=until: should_continue() and time.monotonic() < until
            )
        )
        models.append(model)
    model_ns = explanation_targets.result.model_ns + sum(model.nanoseconds for model in models)
    explanations = iter(explanations_of_targets)
    return ExplainedResult(
        result=msgspec.structs.replace(explanation_targets.result, model_ns=model_ns),
        explanations=[[next(explanations) for _ in output] for output in explanation_targets.targets],
        samples=sum(model.inputs for model in models),
    )


def explanation_deadline(
    started: float, max_seconds: float | None, limits: Limits, remaining_seconds: float | None
) -> float:
    """Return when the samples of an explanation that started at `started` must end.

    Args:
        started: by `time.monotonic`.
        max_seconds: the request's own limit.
        limits: the server's.
        remaining_seconds: seconds until the deadline of the request.
    """
    share = None if remaining_seconds is None else remaining_seconds * _SHARE_OF_SAMPLES
    budgets = (max_seconds, limits.max_explanation_seconds, share)
    return started + min(seconds for seconds in budgets if seconds is not None)


class TimedModel:
    """Call a model, count its inputs and the time of its calls, and report the inputs."""

    def __init__(
        self, model: Callable[[Sequence[Any]], Sequence[Any]], on_inputs: Callable[[int], None] = lambda _: None
    ) -> None:
        self._model = model
        self._on_inputs = on_inputs
        self.inputs = 0
        self.nanoseconds = 0

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        started = time.perf_counter_ns()
        predictions = self._model(inputs)
        self.nanoseconds += time.perf_counter_ns() - started
        self.inputs += len(inputs)
        self._on_inputs(len(inputs))
        return predictions


def _sample_counts(
    targets: Sequence[ExplanationTarget[Any, Any]], parameters: ExplanationParameters, limits: Limits
) -> list[int]:
    max_samples = limits.max_explanation_samples
    share = max(1, min(DEFAULT_SAMPLES, max_samples // len(targets)))
    counts = [sample_count(target.image, parameters, share) for target in targets]
    if sum(counts) > max_samples:
        requested = f"{sum(counts)} for {len(targets)} images" if len(targets) > 1 else str(sum(counts))
        path = "parameters.grid" if parameters.method is ExplanationMethod.OCCLUSION else "parameters.samples"
        message = f"Expected at most {max_samples} masked copies in one request, got {requested}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
    return counts


class ExplanationWorkers:
    """Run explanations in their own threads, so that predictions never wait for them.

    On Linux, where threads have priorities, these have a lower one: when all cores are busy, predictions run first.

    Args:
        workers: number of jobs that run at once; twice as many may wait.
    """

    def __init__(self, workers: int) -> None:
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="explanation", initializer=lower_priority)
        self._max_jobs = workers * (1 + _MAX_WAITING_PER_WORKER)
        self._in_flight = 0
        self._lock = threading.Lock()
        self._finishing_early = threading.Event()
        self._closed = False
        self._last_duration = 1.0

    @property
    def expected_wait(self) -> int:
        """Return the seconds until a job may end, estimated by the duration of the last job; at least 1."""
        return max(1, math.ceil(self._last_duration))

    @property
    def in_flight(self) -> int:
        """Return the number of jobs that run or wait."""
        return self._in_flight

    async def run_request(
        self, context: RequestContext, job: Callable[[Callable[[], bool]], T], report: Callable[[RequestContext], None]
    ) -> T:
        """Run `job`, which answers a request and reports it, until its deadline passes or its client disconnects.

        Args:
            context: context of the request.
            job: as for `run`.
            report: report, once, a request whose job did not finish.

        Raises:
            InferenceError: the exception of `job`; OVERLOADED, DEADLINE_EXCEEDED, or
                MODEL_NOT_READY if the server stops.
        """
        deadline = asyncio.timeout(context.remaining)

        def on_dropped() -> None:
            # The timer of the loop may fire shortly before the deadline on our clock.
            if deadline.expired():
                context.expire()
            else:
                context.cancel()
            context.failure = context.cancellation
            report(context)

        try:
            async with deadline:
                return await self.run(job, on_dropped)
        except (InferenceError, TimeoutError) as exception:
            if isinstance(exception, TimeoutError):
                context.expire()
            error = exception if isinstance(exception, InferenceError) else context.cancellation or deadline_error()
            context.failure = context.failure or error
            report(context)
            raise error from None

    async def run(self, job: Callable[[Callable[[], bool]], T], on_dropped: Callable[[], None]) -> T:
        """Run `job` in a worker. It gets a function that returns False after cancellation.

        Args:
            job: the job to run.
            on_dropped: called if the coroutine is cancelled before the job starts.

        Raises:
            InferenceError: OVERLOADED if too many jobs wait, MODEL_NOT_READY if the server stops.
        """
        if self._in_flight >= self._max_jobs:
            message = f"The server has {self._in_flight} explanations in flight and takes no more; try again later"
            raise InferenceError(ErrorKind.OVERLOADED, message, retry_after=self.expected_wait)
        cancelled = threading.Event()
        try:
            work = self._workers.submit(
                self._run_timed, job, lambda: not (cancelled.is_set() or self._finishing_early.is_set())
            )
        except RuntimeError:
            raise stopping_error() from None
        with self._lock:
            self._in_flight += 1
        work.add_done_callback(self._job_ended)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            if self._closed and work.cancelled():
                raise stopping_error() from None
            if work.cancel():
                on_dropped()
            raise
        finally:
            cancelled.set()

    def finish_early(self) -> None:
        """Make all jobs end early, with the samples that they have."""
        self._finishing_early.set()

    def close(self) -> None:
        """Accept no more jobs, drop those that wait, and end the others early."""
        self.finish_early()
        self._closed = True
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _run_timed(self, job: Callable[[Callable[[], bool]], T], should_continue: Callable[[], bool]) -> T:
        started = time.monotonic()
        try:
            return job(should_continue)
        finally:
            self._last_duration = time.monotonic() - started

    def _job_ended(self, _: "Future[T]") -> None:
        with self._lock:
            self._in_flight -= 1


def lower_priority() -> None:
    """Lower the priority of the calling thread, where threads have their own priorities."""
    if sys.platform == "linux":
        # Linux gives every thread its own priority, under its thread id.
        thread = threading.get_native_id()
        lower = os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS
        os.setpriority(os.PRIO_PROCESS, thread, min(_LOWEST_PRIORITY, lower))
