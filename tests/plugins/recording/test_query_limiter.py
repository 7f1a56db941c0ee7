"""The limiter of queries of recordings."""

import asyncio
import os
import sys
import threading

import pytest
from prometheus_client import CollectorRegistry

from app.plugins.recording.query_limiter import QueryLimiter
from tasks.inference.error import ErrorKind, InferenceError


def test_queries_beyond_the_limit_are_rejected_and_counted() -> None:
    metrics, gate = CollectorRegistry(), threading.Event()

    async def run() -> None:
        limiter = QueryLimiter(metrics=metrics, max_queries=3)
        waiting = [asyncio.ensure_future(limiter.run(lambda: gate.wait(60))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(InferenceError, match="3 queries of recordings are in flight") as caught:
            await limiter.run(lambda: None)
        assert (caught.value.kind, caught.value.retry_after) == (ErrorKind.OVERLOADED, 1)
        gate.set()
        assert await asyncio.gather(*waiting) == [True] * 3
        limiter.close()

    asyncio.run(run())
    assert metrics.get_sample_value("charioteer_queries_refused_total") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities elsewhere")
def test_query_threads_have_a_lower_priority() -> None:
    limiter = QueryLimiter()
    priority = asyncio.run(limiter.run(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    limiter.close()
    assert priority > os.getpriority(os.PRIO_PROCESS, 0)


def test_waiting_query_of_a_disconnected_client_does_not_run() -> None:
    gate, ran = threading.Event(), threading.Event()

    async def run() -> None:
        limiter = QueryLimiter()
        running = [asyncio.ensure_future(limiter.run(lambda: gate.wait(60))) for _ in range(2)]
        waiting = asyncio.ensure_future(limiter.run(ran.set))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.set()
        await asyncio.gather(*running)
        assert await limiter.run(lambda: "next") == "next"
        limiter.close()

    asyncio.run(run())
    assert not ran.is_set()
