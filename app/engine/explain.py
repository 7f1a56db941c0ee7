"""Explain answers in a few threads with a lower priority than those of predictions."""

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from app.engine.admission import RETRY_AFTER
from app.engine.answered import InferenceResult, Timings
from app.engine.interest import late, stopping
from app.engine.servable import Servable
from app.engine.story import RequestContext
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.parameters import read_parameters
from tasks.exchange.request import InferenceRequest
from tasks.explanation.explanation import DEFAULT_SAMPLES, Explanation, ExplanationMethod, ExplanationParameters
from tasks.explanation.sampling import Subject, sample_count, sampled

__all__ = ("Explained", "ExplanationWorkers", "explained", "lower_priority")

T = TypeVar("T")

_NICENESS = 10
_LOWEST_PRIORITY = 19
_MAX_WAITING_PER_WORKER = 2
_SHARE_OF_SAMPLES = 0.9


class Explained(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A result with its explanations.

    Attributes:
        answered: the result; its timings include those of the explanations.
        explanations: for each output, for each of its images, one for each explained prediction.
        samples: masked copies of images that the model processed.
    """

    answered: InferenceResult
    explanations: Sequence[Sequence[Sequence[Explanation]]]
    samples: int


def explained(
    servable: Servable,
    request: InferenceRequest,
    limits: Limits,
    go_on: Callable[[], bool],
    left: float | None = None,
) -> Explained:
    """Answer every input of `request`, and explain the answers with saliency maps.

    The remaining time is divided evenly among the remaining images.

    Args:
        servable: the model.
        request: its parameters include those of the explanations.
        limits: limits on one request.
        go_on: called every few samples; when it returns False, the explanations use the samples taken so far.
        left: seconds until the deadline of the request; the samples get most of them.

    Raises:
        InferenceError: as `Servable.find`; INVALID_REQUEST for invalid explanation parameters; TOO_LARGE for more
            samples than one request may take.
    """
    started = time.monotonic()
    parameters = read_parameters(ExplanationParameters, request.parameters)
    try:
        findings = servable.find(request, limits, parameters.label, parameters.max_objects)
    except InferenceError as error:
        if error.path != "label":
            raise
        raise error.under("parameters") from None
    subjects = [subject for output in findings.subjects for subject in output]
    counts = _counts(subjects, parameters, limits)
    limit = limits.max_explanation_seconds
    budgets = (parameters.max_seconds, limit, None if left is None else left * _SHARE_OF_SAMPLES)
    deadline = started + min(seconds for seconds in budgets if seconds is not None)
    explanations_of_subjects: list[list[Explanation]] = []
    models: list[_TimedModel] = []
    for remaining, subject, count in zip(range(len(subjects), 0, -1), subjects, counts, strict=True):
        now = time.monotonic()
        until = now + (deadline - now) / remaining
        model = _TimedModel(subject.model)
        timed = msgspec.structs.replace(subject, model=model)
        explanations_of_subjects.append(
            sampled(timed, parameters, count, lambda until=until: go_on() and time.monotonic() < until)
        )
        models.append(model)
    timings = Timings(model=sum(model.nanoseconds for model in models))
    explanations = iter(explanations_of_subjects)
    return Explained(
        answered=msgspec.structs.replace(findings.answered, timings=findings.answered.timings.and_then(timings)),
        explanations=[[next(explanations) for _ in output] for output in findings.subjects],
        samples=sum(model.inputs for model in models),
    )


class _TimedModel:
    """Call a model, and count its inputs and the time of its calls."""

    def __init__(self, model: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._model = model
        self.inputs = 0
        self.nanoseconds = 0

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        started = time.perf_counter_ns()
        predictions = self._model(inputs)
        self.nanoseconds += time.perf_counter_ns() - started
        self.inputs += len(inputs)
        return predictions


def _counts(subjects: Sequence[Subject[Any, Any]], parameters: ExplanationParameters, limits: Limits) -> list[int]:
    max_samples = limits.max_explanation_samples
    share = max(1, min(DEFAULT_SAMPLES, max_samples // len(subjects)))
    counts = [sample_count(subject.image, parameters, share) for subject in subjects]
    if sum(counts) > max_samples:
        requested = f"{sum(counts)} for {len(subjects)} images" if len(subjects) > 1 else str(sum(counts))
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
        self._taken = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._closed = False
        self._last_duration = 1.0

    @property
    def expected_wait(self) -> int:
        """Return the seconds until a job may end, estimated by the duration of the last job; at least 1."""
        return max(1, math.ceil(self._last_duration))

    @property
    def taken(self) -> int:
        """Return the number of jobs that run or wait."""
        return self._taken

    async def run_for(
        self, story: RequestContext, job: Callable[[Callable[[], bool]], T], tell: Callable[[RequestContext], None]
    ) -> T:
        """Run `job`, which answers a request and reports it, until its deadline passes or its client disconnects.

        Args:
            story: context of the request.
            job: as for `run`.
            tell: report, once, a request whose job did not finish.

        Raises:
            InferenceError: the exception of `job`; OVERLOADED, with the header retry-after, DEADLINE_EXCEEDED, or
                MODEL_NOT_READY if the server stops.
        """
        deadline = asyncio.timeout(story.interest.left)

        def dropped() -> None:
            # The timer of the loop may fire shortly before the deadline on our clock.
            if deadline.expired():
                story.interest.expire()
            else:
                story.interest.leave()
            story.error = story.interest.loss
            tell(story)

        try:
            async with deadline:
                return await self.run(job, dropped)
        except (InferenceError, TimeoutError) as raised:
            if isinstance(raised, TimeoutError):
                story.interest.expire()
            error = raised if isinstance(raised, InferenceError) else story.interest.loss or late()
            if error.kind is ErrorKind.OVERLOADED:
                story.caller.returned[RETRY_AFTER] = str(self.expected_wait)
            story.error = story.error or error
            tell(story)
            raise error from None

    async def run(self, job: Callable[[Callable[[], bool]], T], dropped: Callable[[], None]) -> T:
        """Run `job` in a worker. It gets a function that returns False after cancellation.

        Args:
            job: the job to run.
            dropped: called if the coroutine is cancelled before the job starts.

        Raises:
            InferenceError: OVERLOADED if too many jobs wait, MODEL_NOT_READY if the server stops.
        """
        if self._taken >= self._max_jobs:
            message = f"The server has {self._taken} explanations in flight and takes no more; try again later"
            raise InferenceError(ErrorKind.OVERLOADED, message)
        cancelled = threading.Event()
        try:
            work = self._workers.submit(self._timed, job, lambda: not (cancelled.is_set() or self._closing.is_set()))
        except RuntimeError:
            raise stopping() from None
        with self._lock:
            self._taken += 1
        work.add_done_callback(self._leave)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            if self._closed and work.cancelled():
                raise stopping() from None
            if work.cancel():
                dropped()
            raise
        finally:
            cancelled.set()

    def hurry(self) -> None:
        """Make all jobs end early, with the samples that they have."""
        self._closing.set()

    def close(self) -> None:
        """Accept no more jobs, drop those that wait, and end the others early."""
        self.hurry()
        self._closed = True
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _timed(self, job: Callable[[Callable[[], bool]], T], go_on: Callable[[], bool]) -> T:
        started = time.monotonic()
        try:
            return job(go_on)
        finally:
            self._last_duration = time.monotonic() - started

    def _leave(self, _: "Future[T]") -> None:
        with self._lock:
            self._taken -= 1


def lower_priority() -> None:
    """Lower the priority of the calling thread, where threads have their own priorities."""
    if sys.platform == "linux":
        # Linux gives every thread its own priority, under its thread id.
        thread = threading.get_native_id()
        lower = os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS
        os.setpriority(os.PRIO_PROCESS, thread, min(_LOWEST_PRIORITY, lower))
