"""Limit the queries of recordings: two run at once, in low-priority threads, and the next ones wait or are rejected."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter

from app.core.engine.scheduling.thread_pool import lower_priority
from tasks.inference.error import ErrorKind, InferenceError

T = TypeVar("T")

_THREADS = 2
_MAX_QUERIES = 16
"""Limit for running and queued queries: a browser requests six images at once, and there can be several users."""

_RETRY_AFTER_SECONDS = 1


class QueryLimiter:
    """Run at most two queries at once, and reject those above `max_queries`."""

    def __init__(self, metrics: CollectorRegistry | None = None, max_queries: int = _MAX_QUERIES) -> None:
        self._max_queries = max_queries
        self._in_flight = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="query", initializer=lower_priority)
        self._rejected_counter = Counter(
            "charioteer_queries_refused",
            "Queries of recordings that were refused because too many were in flight.",
            registry=metrics or CollectorRegistry(),
        )

    async def run(self, query: Callable[[], T]) -> T:
        """Run `query` in one of the threads.

        Raise OVERLOADED if too many queries are in flight; also raises what `query` raises.
        """
        if self._in_flight >= self._max_queries:
            self._rejected_counter.inc()
            message = f"{self._in_flight} queries of recordings are in flight, the maximum; try again later"
            raise InferenceError(ErrorKind.OVERLOADED, message, retry_after=_RETRY_AFTER_SECONDS)
        future = self._threads.submit(query)
        self._in_flight += 1
        loop = asyncio.get_running_loop()

        def release(_: object) -> None:
            # The loop is closed if the server has stopped meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._release)

        # A query of a client that has disconnected counts until its thread is free again.
        future.add_done_callback(release)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Reject further queries."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _release(self) -> None:
        self._in_flight -= 1
