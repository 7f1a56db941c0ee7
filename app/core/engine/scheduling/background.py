"""A lane for work beside the answers to requests, such as queries of recordings or tests for drift."""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from app.core.engine.scheduling.thread_pool import lower_priority
from tasks.inference.error import ErrorKind, InferenceError

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.005


class _Job(NamedTuple):
    work: Callable[[], Any]
    size: int
    future: "Future[Any]"


class Background:
    """Run jobs in threads with low priority, which start with the first job. All methods may be called in any thread.

    `name`, in the plural, says what the jobs are. The lane is full while `max_waiting` of them or `max_bytes` wait.
    `may_run` returns whether a job may start now. `tick` is called between jobs, about every `tick_seconds`, after
    `start` or the first job.
    """

    def __init__(
        self,
        name: str,
        max_waiting: int,
        max_bytes: float = math.inf,
        *,
        threads: int = 1,
        may_run: Callable[[], bool] | None = None,
        tick: Callable[[], object] | None = None,
        tick_seconds: float = 1.0,
    ) -> None:
        self.name = name
        self._max_waiting, self._max_bytes, self._max_threads = max_waiting, max_bytes, threads
        self._may_run, self._tick, self._tick_seconds = may_run, tick, tick_seconds
        self._jobs: deque[_Job] = deque()
        self._bytes = self._idle = 0
        self._threads: list[threading.Thread] = []
        self._next_tick = time.monotonic() + tick_seconds
        self._closed = False
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """Return the number of jobs that wait."""
        return len(self._jobs)

    def start(self) -> None:
        """Start a thread for `tick`, if none runs."""
        with self._changed:
            if not self._threads and not self._closed:
                self._spawn()

    def submit(self, work: Callable[[], object], size: int = 0) -> bool:
        """Add a job of `size` bytes, whose failure is logged; return False if the lane is full or closed."""
        future = self._add(work, size)
        if future is not None:
            future.add_done_callback(self._log_failure)
        return future is not None

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of a job. Raise OVERLOADED if the lane is full or closed; also what the job raises."""
        future = self._add(work, 0)
        if future is None:
            message = f"{self.waiting} {self.name} wait, which is the maximum; try again later"
            raise InferenceError(ErrorKind.OVERLOADED, message, retry_after=1)
        return await asyncio.wrap_future(future)

    def close(self, seconds: float, last: Callable[[], object] | None = None) -> None:
        """Accept no more jobs, drop those that wait, and wait up to some seconds for the others.

        `last` is called in a thread of the lane, after the job that runs there.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            dropped, self._bytes = [*self._jobs], 0
            self._jobs.clear()
            if last is not None:
                self._jobs.append(_Job(last, 0, Future()))
                self._jobs[0].future.add_done_callback(self._log_failure)
                if not self._threads:
                    self._spawn()
            self._changed.notify_all()
        for job in dropped:
            job.future.cancel()
        for thread in self._threads:
            thread.join(seconds)

    def _add(self, work: Callable[[], Any], size: int) -> "Future[Any] | None":
        with self._changed:
            if self._closed or len(self._jobs) >= self._max_waiting or self._bytes >= self._max_bytes:
                return None
            job = _Job(work, size, Future())
            self._jobs.append(job)
            self._bytes += size
            if self._idle < len(self._jobs) and len(self._threads) < self._max_threads:
                self._spawn()
            self._changed.notify()
        return job.future

    def _spawn(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self.name}-{len(self._threads) + 1}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        with suppress(OSError):
            lower_priority()
        while (job := self._next()) is not None:
            if job.future.set_running_or_notify_cancel():
                try:
                    result = job.work()
                except BaseException as error:  # noqa: BLE001  who waits for the result raises it
                    job.future.set_exception(error)
                else:
                    job.future.set_result(result)
                    del result
            # Drop its memory now, not when the next job starts.
            del job

    def _next(self) -> _Job | None:
        """Return the next job when it may start; None at the end."""
        has_ticked = False
        while True:
            with self._changed:
                now = time.monotonic()
                if self._closed or self._tick is None or has_ticked or now < self._next_tick:
                    if self._jobs and (self._closed or self._may_run is None or self._may_run()):
                        job = self._jobs.popleft()
                        self._bytes = max(0, self._bytes - job.size)
                        return job
                    if self._closed:
                        return None
                    self._idle += 1
                    until_tick = None if self._tick is None else self._next_tick - now
                    self._changed.wait(_POLL_SECONDS if self._jobs else until_tick)
                    self._idle -= 1
                    has_ticked = False
                    continue
                self._next_tick = now + self._tick_seconds
            has_ticked = True
            try:
                self._tick()
            except Exception:
                _logger.exception("background job failed", extra={"lane": self.name})

    def _log_failure(self, future: "Future[Any]") -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            _logger.error("background job failed", exc_info=error, extra={"lane": self.name})
