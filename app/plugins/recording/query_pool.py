"""Run queries of recordings in low-priority threads."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter

from app.core.engine.scheduling.thread_pool import lower_priority
from tasks.inference.error import ErrorKind, InferenceError

T = TypeVar("T")

_THREADS = 2
_MAX_QUERIES = 16
"""Limit for running and queued queries: a browser requests six images at once, and there can be several users."""

_SHARE = 0.025
"""Share of the CPU time of the process that each thread takes while inferences are in flight. Because of the global
interpreter lock, a lower priority alone does not limit queries."""

_OVERHEAD_SECONDS = 0.001
"""Additional CPU time of a query in the event loop."""

_MAX_PAUSE_SECONDS = 2.0
_POLL_SECONDS = 0.02
_RETRY_AFTER_SECONDS = 1


class QueryPool:
    """Run a bounded number of queries in a few low-priority threads, and reject those above `max_queries`.

    While inferences are in flight, a thread pauses after each query until its share of the CPU time is restored.
    """

    def __init__(
        self,
        is_busy: Callable[[], bool] = lambda: False,
        metrics: CollectorRegistry | None = None,
        max_queries: int = _MAX_QUERIES,
    ) -> None:
        self._is_busy = is_busy
        self._max_queries = max_queries
        self._in_flight = 0
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="query", initializer=lower_priority)
        self._refused_counter = Counter(
            "charioteer_queries_refused",
            "Queries of recordings that were refused because too many were in flight.",
            registry=metrics or CollectorRegistry(),
        )

    def overload(self) -> InferenceError | None:
        """Return the error with which one more query is rejected now; None otherwise. Call it in the event loop."""
        if self._in_flight < self._max_queries:
            return None
        message = f"{self._in_flight} queries of recordings are in flight, which is all that may be; try again later"
        return InferenceError(ErrorKind.OVERLOADED, message, retry_after=_RETRY_AFTER_SECONDS)

    def count_refused(self, count: int) -> None:
        """Count `count` rejected queries."""
        self._refused_counter.inc(count)

    async def run(self, query: Callable[[], T]) -> T:
        """Run `query` in one of the threads.

        Raises:
            InferenceError: OVERLOADED if too many queries are in flight; also raises what `query` raises.
        """
        if (overload := self.overload()) is not None:
            self.count_refused(1)
            raise overload
        loop = asyncio.get_running_loop()
        result: Future[T] = Future()
        self._in_flight += 1

        def release() -> None:
            self._in_flight -= 1

        def work() -> None:
            started = time.thread_time()
            # False if the client has disconnected meanwhile.
            if result.set_running_or_notify_cancel():
                try:
                    result.set_result(query())
                except BaseException as error:  # noqa: BLE001  the caller of `run` gets it
                    result.set_exception(error)
            self._pause(time.thread_time() - started)
            with suppress(RuntimeError):  # the loop is closed when the server has stopped meanwhile
                loop.call_soon_threadsafe(release)

        self._threads.submit(work)
        return await asyncio.wrap_future(result)

    def close(self) -> None:
        """Reject further queries, and end pauses."""
        self._closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _pause(self, cpu_seconds: float) -> None:
        """Pause the thread to keep its share of CPU time; the query still counts as in flight."""
        deadline = time.monotonic() + _MAX_PAUSE_SECONDS
        resume_at = time.process_time() + (cpu_seconds + _OVERHEAD_SECONDS) * (1 / _SHARE - 1)
        while self._is_busy() and time.process_time() < resume_at and time.monotonic() < deadline:
            if self._closing.wait(_POLL_SECONDS):
                return
