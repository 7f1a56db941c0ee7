"""Run explanations in a few threads with a lower priority than those of predictions."""

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from app.engine.cancellation import deadline_error, stopping_error
from app.engine.request_context import RequestContext
from tasks.inference.error import ErrorKind, InferenceError

T = TypeVar("T")

_NICENESS = 10
_LOWEST_PRIORITY = 19
_MAX_WAITING_PER_WORKER = 2


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
    def in_flight(self) -> int:
        """Return the number of jobs that run or wait."""
        return self._in_flight

    async def run_request(
        self, context: RequestContext, job: Callable[[Callable[[], bool]], T], report: Callable[[RequestContext], None]
    ) -> T:
        """Run `job`, which answers a request and reports it, until its deadline passes or its client disconnects.

        Args:
            context: context of the request.
            job: gets a function that returns False after cancellation.
            report: report, once, a request whose job did not finish.

        Raises:
            InferenceError: the exception of `job`; OVERLOADED if too many jobs wait, DEADLINE_EXCEEDED, or
                MODEL_NOT_READY if the server stops.
        """
        deadline, cancelled = asyncio.timeout(context.remaining), threading.Event()
        try:
            async with deadline:
                work = self._submit(job, lambda: not (cancelled.is_set() or self._finishing_early.is_set()))
                try:
                    return await asyncio.wrap_future(work)
                except asyncio.CancelledError:
                    if self._closed and work.cancelled():
                        raise stopping_error() from None
                    if work.cancel():
                        # The timer of the loop may fire shortly before the deadline on our clock.
                        if deadline.expired():
                            context.expire()
                        else:
                            context.cancel()
                        context.failure = context.cancellation
                        report(context)
                    raise
        except (InferenceError, TimeoutError) as exception:
            if isinstance(exception, TimeoutError):
                context.expire()
            error = exception if isinstance(exception, InferenceError) else context.cancellation or deadline_error()
            context.failure = context.failure or error
            report(context)
            raise error from None
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

    def _submit(self, job: Callable[[Callable[[], bool]], T], should_continue: Callable[[], bool]) -> "Future[T]":
        if self._in_flight >= self._max_jobs:
            message = f"The server has {self._in_flight} explanations in flight and takes no more; try again later"
            retry_after = max(1, math.ceil(self._last_duration))
            raise InferenceError(ErrorKind.OVERLOADED, message, retry_after=retry_after)
        try:
            work = self._workers.submit(self._run_timed, job, should_continue)
        except RuntimeError:
            raise stopping_error() from None
        with self._lock:
            self._in_flight += 1
        work.add_done_callback(self._job_ended)
        return work

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
