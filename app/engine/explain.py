"""Explanations of answers, and the threads that make them: few, patient, and out of the way of those that answer."""

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
from app.engine.answered import Answered, Timings
from app.engine.interest import late, stopping
from app.engine.servable import Servable
from app.engine.story import Story
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.parameters import read_parameters
from tasks.exchange.request import InferenceRequest
from tasks.explanation.explanation import DEFAULT_SAMPLES, Explanation, ExplanationMethod, ExplanationParameters
from tasks.explanation.sampling import Subject, sample_count, sampled

__all__ = ("Explained", "ExplanationWorkers", "explained")

T = TypeVar("T")

_NICENESS = 10
_WAITING_FOR_EACH = 2
_SHARE_OF_SAMPLES = 0.9


class Explained(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An answer and the reasons for it.

    Attributes:
        answered: as without them, but what they took is in its timings.
        explanations: for each output, for each of its images, one for each finding.
        samples: masked copies of images that the model was shown.
    """

    answered: Answered
    explanations: Sequence[Sequence[Sequence[Explanation]]]
    samples: int


def explained(
    servable: Servable,
    request: InferenceRequest,
    limits: Limits,
    go_on: Callable[[], bool],
    left: float | None = None,
) -> Explained:
    """Answer every input of `request`, and say where in its images the reasons lie.

    The time that may be taken is shared out evenly among the images that are left.

    Args:
        servable: the model.
        request: its own parameters hold those of the explanations.
        limits: what it may cost.
        go_on: asked every few samples; when it says no, the explanations make do with those taken by then.
        left: seconds that the request may take at the longest; the samples have most of them.

    Raises:
        InferenceError: as `Servable.find`; INVALID_REQUEST for parameters of the explanations that cannot be read;
            TOO_LARGE for more samples than one request may take.
    """
    started = time.monotonic()
    wanted = read_parameters(ExplanationParameters, request.parameters)
    try:
        found = servable.find(request, limits, wanted.label, wanted.max_objects)
    except InferenceError as error:
        if error.path != "label":
            raise
        raise error.under("parameters") from None
    subjects = [subject for each in found.subjects for subject in each]
    counts = _counts(subjects, wanted, limits)
    times = (wanted.max_seconds, limits.max_explanation_seconds, None if left is None else left * _SHARE_OF_SAMPLES)
    deadline = started + min(each for each in times if each is not None)
    made: list[list[Explanation]] = []
    calls: list[_Timed] = []
    for left, subject, count in zip(range(len(subjects), 0, -1), subjects, counts, strict=True):
        now = time.monotonic()
        until = now + (deadline - now) / left
        model = _Timed(subject.model)
        shown = msgspec.structs.replace(subject, model=model)
        made.append(sampled(shown, wanted, count, lambda until=until: go_on() and time.monotonic() < until))
        calls.append(model)
    spent = Timings(model=sum(each.nanoseconds for each in calls))
    explanations = iter(made)
    return Explained(
        answered=msgspec.structs.replace(found.answered, timings=found.answered.timings.and_then(spent)),
        explanations=[[next(explanations) for _ in each] for each in found.subjects],
        samples=sum(each.inputs for each in calls),
    )


class _Timed:
    """A model, and an account of what it was given and how long it took."""

    def __init__(self, model: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._model = model
        self.inputs = 0
        self.nanoseconds = 0

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        began = time.perf_counter_ns()
        answers = self._model(inputs)
        self.nanoseconds += time.perf_counter_ns() - began
        self.inputs += len(inputs)
        return answers


def _counts(subjects: Sequence[Subject[Any, Any]], wanted: ExplanationParameters, limits: Limits) -> list[int]:
    most = limits.max_explanation_samples
    share = max(1, min(DEFAULT_SAMPLES, most // len(subjects)))
    counts = [sample_count(each.image, wanted, share) for each in subjects]
    if sum(counts) > most:
        asked = f"{sum(counts)} for {len(subjects)} images" if len(subjects) > 1 else str(sum(counts))
        path = "parameters.grid" if wanted.method is ExplanationMethod.OCCLUSION else "parameters.samples"
        message = f"Expected at most {most} masked copies in one request, got {asked}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, path)
    return counts


class ExplanationWorkers:
    """Runs long jobs in threads of their own, so that no prediction ever waits for one.

    On Linux, where threads have priorities, these have a lower one: with every core taken, predictions go first.

    Args:
        workers: so many jobs run at once, and twice as many may wait.
    """

    def __init__(self, workers: int) -> None:
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="explanation", initializer=_step_back)
        self._places = workers * (1 + _WAITING_FOR_EACH)
        self._taken = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._closed = False
        self._lasted = 1.0

    @property
    def expected_wait(self) -> int:
        """Seconds after which there may be a place again: as long as the last job took, 1 at least."""
        return max(1, math.ceil(self._lasted))

    @property
    def taken(self) -> int:
        """Jobs that run or wait."""
        return self._taken

    async def run_for(self, story: Story, job: Callable[[Callable[[], bool]], T], tell: Callable[[Story], None]) -> T:
        """Run `job`, which answers a request and tells its story, for as long as its sender waits.

        Args:
            story: of the request.
            job: as for `run`.
            tell: tells the story, once, of a job that did not run to its end.

        Raises:
            InferenceError: what `job` raised; OVERLOADED, with how long to wait in the headers of the response,
                DEADLINE_EXCEEDED, or MODEL_NOT_READY when the server is stopping.
        """

        def dropped() -> None:
            story.interest.leave()
            story.error = story.interest.loss
            tell(story)

        try:
            async with asyncio.timeout(story.interest.left):
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
        """Run `job`, which is given a function that tells whether to go on: not when nobody waits for it any more.

        Args:
            job: what to run.
            dropped: called when nobody waits for it any more before it was begun.

        Raises:
            InferenceError: OVERLOADED when there is no place left, MODEL_NOT_READY when the server is stopping.
        """
        if self._taken >= self._places:
            message = f"The server has {self._taken} explanations in hand and takes no more; try again later"
            raise InferenceError(ErrorKind.OVERLOADED, message)
        left = threading.Event()
        try:
            work = self._workers.submit(self._timed, job, lambda: not (left.is_set() or self._closing.is_set()))
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
            left.set()

    def hurry(self) -> None:
        """Have all jobs from now on end as early as they can."""
        self._closing.set()

    def close(self) -> None:
        """Take no more jobs, drop those that wait, and have the others end early."""
        self.hurry()
        self._closed = True
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _timed(self, job: Callable[[Callable[[], bool]], T], go_on: Callable[[], bool]) -> T:
        began = time.monotonic()
        try:
            return job(go_on)
        finally:
            self._lasted = time.monotonic() - began

    def _leave(self, _: "Future[T]") -> None:
        with self._lock:
            self._taken -= 1


def _step_back() -> None:
    if sys.platform == "linux":
        # To the kernel a thread is a process of its own: this is the priority of the calling thread alone.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
