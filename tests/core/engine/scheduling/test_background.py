"""The lane for work beside requests: limits, order, failures, and its end."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from app.core.engine.scheduling.background import Background
from tasks.inference.error import ErrorKind, InferenceError

SECONDS = 10


@contextmanager
def lane(max_waiting: int = 3, **options: Any) -> Generator[Background]:
    background = Background("jobs", max_waiting, **options)
    try:
        yield background
    finally:
        background.close(SECONDS)


class Blocker:
    """A job that runs until it is released."""

    def __init__(self) -> None:
        self.started, self.released = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.started.set()
        assert self.released.wait(SECONDS)


@contextmanager
def blocked(background: Background) -> Generator[Blocker]:
    blocker = Blocker()
    assert background.submit(blocker)
    assert blocker.started.wait(SECONDS)
    try:
        yield blocker
    finally:
        blocker.released.set()


def test_full_lane_rejects_jobs_and_keeps_their_order() -> None:
    done, order = threading.Event(), list[int]()
    with lane() as background:
        with blocked(background):
            assert [background.submit(partial(order.append, number)) for number in range(4)] == [True] * 3 + [False]
            assert background.waiting == 3
        while not background.submit(done.set):
            time.sleep(0)
        assert done.wait(SECONDS)
    assert order == [0, 1, 2]


def test_size_of_waiting_jobs_is_limited() -> None:
    with lane(max_bytes=10) as background, blocked(background):
        assert [background.submit(lambda: None, 6) for _ in range(3)] == [True, True, False]


def test_jobs_start_only_when_they_may() -> None:
    may_run, asked, ran = threading.Event(), threading.Event(), threading.Event()
    early: list[bool] = []

    def ask() -> bool:
        asked.set()
        return may_run.is_set()

    def run() -> None:
        early.append(not may_run.is_set())
        ran.set()

    with lane(may_run=ask) as background:
        assert background.submit(run)
        assert asked.wait(SECONDS)
        may_run.set()
        assert ran.wait(SECONDS)
    assert early == [False]


def test_tick_is_called_between_jobs_and_without_jobs(caplog: pytest.LogCaptureFixture) -> None:
    ticked = threading.Semaphore(0)

    def tick() -> None:
        ticked.release()
        raise RuntimeError("tick")

    with lane(tick=tick, tick_seconds=0.0) as background:
        background.start()
        assert all(ticked.acquire(timeout=SECONDS) for _ in range(3))
        with blocked(background):
            pass
        assert ticked.acquire(timeout=SECONDS)
    assert caplog.records[0].message == "background job failed"


def test_failing_job_is_logged_and_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Event()

    def fail() -> None:
        raise ValueError("broken")

    with lane() as background:
        background.submit(fail)
        background.submit(ran.set)
        assert ran.wait(SECONDS)
    (record,) = caplog.records
    assert (record.message, getattr(record, "lane", None)) == ("background job failed", "jobs")


def test_run_returns_the_result_and_raises_what_the_job_raises(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        assert await background.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await background.run(lambda: 1 / 0)
        with blocked(background):
            for _ in range(3):
                background.submit(lambda: None)
            with pytest.raises(InferenceError, match="3 jobs wait, which is the maximum") as caught:
                await background.run(lambda: None)
        assert (caught.value.kind, caught.value.retry_after) == (ErrorKind.OVERLOADED, 1)

    with lane() as background:
        asyncio.run(check())
    assert not caplog.records


def test_threads_run_jobs_at_once() -> None:
    with lane(threads=2) as background, blocked(background), blocked(background):
        background.submit(lambda: None)
        assert background.waiting == 1


@pytest.mark.parametrize("used", [True, False])
def test_close_drops_waiting_jobs_and_calls_the_last_one_in_the_lane(used: bool) -> None:
    ran: list[str] = []

    def record(name: str) -> Callable[[], None]:
        return lambda: ran.append(f"{name} in {threading.current_thread().name}")

    background = Background("jobs", 3)
    if used:
        with blocked(background) as blocker:
            background.submit(record("waiting"))
            threading.Timer(0.01, blocker.released.set).start()
            background.close(SECONDS, last=record("last"))
    else:
        background.close(SECONDS, last=record("last"))
    background.close(SECONDS, last=record("again"))
    assert not background.submit(record("late"))
    assert ran == ["last in jobs-1"]
