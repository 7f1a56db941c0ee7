"""The thread pool for queries of recordings."""

import asyncio
import os
import sys
import threading

import pytest
from prometheus_client import CollectorRegistry

from app.plugins.recording.query_pool import QueryPool
from tasks.inference.error import ErrorKind, InferenceError
from tests.support.polling import wait_until_async


def test_queries_beyond_the_limit_are_refused_and_counted() -> None:
    metrics, gate = CollectorRegistry(), threading.Event()

    async def run() -> None:
        pool = QueryPool(metrics=metrics, max_queries=3)
        waiting = [asyncio.ensure_future(pool.run(lambda: gate.wait(60))) for _ in range(3)]
        await asyncio.sleep(0)
        overload = pool.overload()
        assert overload is not None
        assert overload.retry_after == 1
        with pytest.raises(InferenceError, match="3 queries of recordings are in flight") as caught:
            await pool.run(lambda: None)
        assert caught.value.kind is ErrorKind.OVERLOADED
        gate.set()
        assert await asyncio.gather(*waiting) == [True] * 3
        pool.close()

    asyncio.run(run())
    assert metrics.get_sample_value("charioteer_queries_refused_total") == 1


def test_error_of_a_query_reaches_the_client() -> None:
    async def run() -> None:
        pool = QueryPool()
        with pytest.raises(InferenceError, match="wrong"):
            await pool.run(_fail)
        pool.close()

    asyncio.run(run())


def _fail() -> None:
    raise InferenceError(ErrorKind.INVALID_REQUEST, "wrong")


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities elsewhere")
def test_query_threads_have_a_lower_priority() -> None:
    async def run() -> int:
        pool = QueryPool()
        try:
            return await pool.run(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        finally:
            pool.close()

    assert asyncio.run(run()) > os.getpriority(os.PRIO_PROCESS, 0)


def test_slot_stays_taken_while_a_query_pauses_for_inferences() -> None:
    busy = threading.Event()
    busy.set()

    async def run() -> None:
        pool = QueryPool(busy.is_set, max_queries=1)
        await pool.run(lambda: sum(range(3_000_000)))
        assert pool.overload() is not None
        busy.clear()
        await wait_until_async(lambda: pool.overload() is None)
        pool.close()

    asyncio.run(run())


def test_waiting_query_of_a_disconnected_client_does_not_run() -> None:
    gate, ran = threading.Event(), threading.Event()

    async def run() -> None:
        pool = QueryPool()
        running = [asyncio.ensure_future(pool.run(lambda: gate.wait(60))) for _ in range(2)]
        waiting = asyncio.ensure_future(pool.run(ran.set))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.set()
        await asyncio.gather(*running)
        assert await pool.run(lambda: "next") == "next"
        pool.close()

    asyncio.run(run())
    assert not ran.is_set()
