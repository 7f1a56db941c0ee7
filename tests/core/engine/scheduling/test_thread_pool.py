"""Worker threads, including those that wait elsewhere."""

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import ParamSpec, TypeVar

import pytest

from app.core.engine.scheduling.thread_pool import ThreadPool, release_worker, run_in_daemon_thread
from tests.support.pool_jobs import Gate, submit_for

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT = 30


def submit(workers: ThreadPool, job: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
    """Submit a job that belongs to no model."""
    return submit_for(workers, "", partial(job, *args, **kwargs))


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Yield a gate that opens at the end."""
    created = Gate()
    yield created
    created.open.set()


def test_submit_returns_results_and_errors() -> None:
    workers = ThreadPool(2, "w")
    assert submit(workers, divmod, 7, 2).result(TIMEOUT) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        submit(workers, divmod, 1, 0).result(TIMEOUT)
    with pytest.raises(SystemExit):
        submit(workers, sys.exit, 1).result(TIMEOUT)
    assert submit(workers, len, "still there").result(TIMEOUT) == 11
    workers.close()


def test_running_jobs_are_limited_again_after_waits_elsewhere(gate: Gate) -> None:
    workers, elsewhere = ThreadPool(2, "w"), Gate()
    waiting = [submit(workers, elsewhere.block_elsewhere) for _ in range(6)]
    elsewhere.wait_started(6)
    elsewhere.open.set()
    for job in waiting:
        job.result(TIMEOUT)
    for _ in range(20):
        submit(workers, gate.block)
    gate.wait_started(2)
    assert not gate.started.acquire(timeout=0.05)


def test_spare_threads_are_reused() -> None:
    workers = ThreadPool(1, "spare")
    for _ in range(20):
        gate = Gate()
        waiting = submit(workers, gate.block_elsewhere)
        gate.wait_started(1)
        assert submit(workers, len, "abc").result(TIMEOUT) == 3
        gate.open.set()
        waiting.result(TIMEOUT)
    threads_made = [thread for thread in threading.enumerate() if thread.name.startswith("spare-")]
    assert len(threads_made) <= 3
    workers.close()


def test_close_drops_queued_jobs_and_finishes_running_ones(gate: Gate) -> None:
    workers = ThreadPool(1, "w")
    running = submit(workers, gate.block)
    gate.wait_started(1)
    dropped = submit(workers, len, "")
    workers.close()
    workers.close()
    with pytest.raises(CancelledError):
        dropped.result(TIMEOUT)
    with pytest.raises(RuntimeError, match="are closed"):
        submit(workers, len, "")
    gate.open.set()
    assert running.result(TIMEOUT) == "w-1"


def test_job_that_waits_elsewhere_finishes_after_close(gate: Gate) -> None:
    workers = ThreadPool(1, "w")
    waiting = submit(workers, gate.block_elsewhere)
    gate.wait_started(1)
    workers.close()
    gate.open.set()
    assert waiting.result(TIMEOUT)


def test_model_does_not_wait_for_long_jobs_of_another(gate: Gate) -> None:
    workers = ThreadPool(2, "w")
    for _ in range(5):
        submit_for(workers, "slow", gate.block)
    gate.wait_started(2)
    for _ in range(20):
        assert submit_for(workers, "fast", lambda: "at once").result(TIMEOUT) == "at once"
    assert not gate.started.acquire(timeout=0.05)


def test_extra_threads_are_at_most_as_many_as_workers(gate: Gate) -> None:
    workers = ThreadPool(2, "w")
    jobs = [submit_for(workers, f"model-{index}", gate.block) for index in range(10)]
    gate.wait_started(4)
    assert not gate.started.acquire(timeout=0.05)
    gate.open.set()
    assert {job.result(TIMEOUT) for job in jobs} <= {"w-1", "w-2", "w-3", "w-4"}


def test_cancelled_jobs_are_released_while_workers_are_busy(gate: Gate) -> None:
    workers = ThreadPool(1, "w")
    submit_for(workers, "m", lambda: threading.Event().wait(0.05)).result(TIMEOUT)
    running = submit_for(workers, "m", gate.block)
    gate.wait_started(1)
    dropped_gate = Gate()
    reference = weakref.ref(dropped_gate)
    waiting = [submit_for(workers, "m", dropped_gate.block) for _ in range(100)]
    del dropped_gate
    assert workers.expected_wait("m") > 4
    assert workers.expected_wait("other") == 0
    assert all(job.cancel() for job in waiting)
    del waiting
    gc.collect()
    # Only the running job remains.
    assert 0 < workers.expected_wait("m") < 4
    assert reference() is None, "the cancelled jobs are dropped"
    last = submit_for(workers, "m", lambda: "still there")
    gate.open.set()
    assert (running.result(TIMEOUT), last.result(TIMEOUT)) == ("w-1", "still there")


def test_expected_wait_counts_own_backlog_and_a_share_of_others(gate: Gate) -> None:
    workers = ThreadPool(1, "w")
    submit_for(workers, "slow", lambda: threading.Event().wait(0.1)).result(TIMEOUT)
    submit_for(workers, "fast", lambda: None).result(TIMEOUT)
    jobs = [submit_for(workers, model, gate.block) for model in ("slow", "fast")]
    gate.wait_started(2)
    jobs += [submit_for(workers, "slow", gate.block) for _ in range(50)]
    assert workers.expected_wait("slow") > 4
    assert workers.expected_wait("fast") < 1


def test_time_spent_elsewhere_does_not_count_as_job_time(gate: Gate) -> None:
    workers = ThreadPool(1, "w")

    def wait() -> None:
        with release_worker():
            threading.Event().wait(0.2)

    submit_for(workers, "m", wait).result(TIMEOUT)
    for _ in range(5):
        submit_for(workers, "m", gate.block)
    gate.wait_started(1)
    # Five jobs of 0.2 s would be expected to take a second.
    assert workers.expected_wait("m") < 0.9


def test_callback_of_a_job_dropped_at_close_may_call_expected_wait(gate: Gate) -> None:
    workers = ThreadPool(1, "w")
    running = submit_for(workers, "m", gate.block)
    gate.wait_started(1)
    waits: list[float] = []
    dropped = submit_for(workers, "m", lambda: None)
    dropped.add_done_callback(lambda _: waits.append(workers.expected_wait("m")))
    closing = threading.Thread(target=workers.close, daemon=True)
    closing.start()
    closing.join(TIMEOUT)
    assert waits == [0]
    gate.open.set()
    running.result(TIMEOUT)


def test_failed_thread_start_loses_no_job(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    def reject(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers = ThreadPool(2, "w")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", reject)
        with pytest.raises(RuntimeError, match="new thread"):
            submit(workers, len, "")
    first = submit(workers, gate.block_elsewhere)
    gate.wait_started(1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", reject)
        others = [submit(workers, len, "ab") for _ in range(3)]
    gate.open.set()
    assert first.result(TIMEOUT)
    assert [job.result(TIMEOUT) for job in others] == [2, 2, 2]
    barrier = threading.Barrier(2, timeout=TIMEOUT)
    for job in [submit(workers, barrier.wait) for _ in range(2)]:
        job.result(TIMEOUT)


def test_event_loop_ends_while_daemon_work_runs() -> None:
    proceed, ended = threading.Event(), threading.Event()

    def hang() -> None:
        assert proceed.wait(60)
        ended.set()

    async def run() -> None:
        task = asyncio.create_task(run_in_daemon_thread(hang))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert not ended.is_set()
    proceed.set()
    assert ended.wait(60)
