"""Dynamic batching: several requests in one call of the model."""

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.engine.cancellation import CancellationToken, cancellation_scope
from app.core.engine.scheduling.batching import BatchingRunner
from app.core.engine.scheduling.thread_pool import ThreadPool
from tasks.inference.error import ErrorKind, InferenceError
from tasks.text_generation import Generation
from tests.support.pool_jobs import submit_for

TIMEOUT = 30
LONG_DELAY = 2.0 * TIMEOUT
"""A test fails before a batch that waits in vain."""


class Echo:
    """Return the inputs and record the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, inputs: Sequence[str], /) -> Sequence[Generation]:
        self.batches.append(list(inputs))
        if "bad" in inputs:
            raise ValueError("a bad input")
        return [Generation(text) for text in inputs]


class BlockedEcho(Echo):
    """Wait for `released` before answering."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Semaphore(0)
        self.released = threading.Event()

    def __call__(self, inputs: Sequence[str], /) -> Sequence[Generation]:
        self.started.release()
        assert self.released.wait(TIMEOUT)
        return super().__call__(inputs)


@contextmanager
def busy_workers(count: int = 2) -> Generator[ThreadPool]:
    """Yield workers with a busy one among them, so that requests wait for a batch."""
    workers, done = ThreadPool(count, "w"), threading.Event()
    blocker = submit_for(workers, "", partial(done.wait, TIMEOUT))
    try:
        yield workers
    finally:
        done.set()
        blocker.result(TIMEOUT)
        workers.close()


def submit(workers: ThreadPool, model: BatchingRunner, *texts: str) -> "Future[list[str]]":
    return submit_for(workers, "m", lambda: [generation.text for generation in model(texts)])


def test_concurrent_requests_are_one_call() -> None:
    echo = Echo()
    model = BatchingRunner(echo, 4, LONG_DELAY)
    with busy_workers() as workers:
        jobs = [submit(workers, model, *texts) for texts in (["a"], ["b", "c"], ["d"])]
        assert [job.result(TIMEOUT) for job in jobs] == [["a"], ["b", "c"], ["d"]]
    assert sorted(echo.batches[0]) == ["a", "b", "c", "d"]
    assert len(echo.batches) == 1


def test_single_request_does_not_wait_for_a_batch() -> None:
    echo, workers = Echo(), ThreadPool(2, "w")
    assert submit(workers, BatchingRunner(echo, 4, LONG_DELAY), "a").result(TIMEOUT / 3) == ["a"]
    assert [generation.text for generation in BatchingRunner(echo, 4, LONG_DELAY)(["b"])] == ["b"]
    workers.close()


def test_incomplete_batch_runs_after_the_delay() -> None:
    echo = Echo()
    with busy_workers() as workers:
        assert submit(workers, BatchingRunner(echo, 4, 0.01), "a").result(TIMEOUT) == ["a"]
    assert echo.batches == [["a"]]


def test_next_batch_forms_while_one_runs() -> None:
    blocked = BlockedEcho()
    model = BatchingRunner(blocked, 2, LONG_DELAY)
    with busy_workers() as workers:
        first = [submit(workers, model, text) for text in "ab"]
        assert blocked.started.acquire(timeout=TIMEOUT)
        second = [submit(workers, model, text) for text in "cd"]
        blocked.released.set()
        assert [job.result(TIMEOUT) for job in (*first, *second)] == [["a"], ["b"], ["c"], ["d"]]
    assert sorted(map(sorted, blocked.batches)) == [["a", "b"], ["c", "d"]]


def test_failed_batch_fails_only_the_request_that_caused_it() -> None:
    echo = Echo()
    model = BatchingRunner(echo, 4, LONG_DELAY)
    with busy_workers() as workers:
        jobs = {text: submit(workers, model, text) for text in ("a", "bad", "b", "c")}
        for text in "abc":
            assert jobs[text].result(TIMEOUT) == [text]
        with pytest.raises(ValueError, match="bad input"):
            jobs["bad"].result(TIMEOUT)
    assert len(echo.batches) == 5


def test_cancelled_request_is_left_out_of_the_batch() -> None:
    blocked = BlockedEcho()
    model = BatchingRunner(blocked, 2, 0.05)
    token = CancellationToken()

    def run_cancelled() -> list[str]:
        with cancellation_scope(token):
            return [generation.text for generation in model(["x"])]

    with busy_workers() as workers:
        first = [submit(workers, model, text) for text in "ab"]
        assert blocked.started.acquire(timeout=TIMEOUT)
        token.cancel()
        cancelled = submit_for(workers, "m", run_cancelled)
        later = [submit(workers, model, text) for text in "cd"]
        blocked.released.set()
        assert [job.result(TIMEOUT) for job in (*first, *later)] == [["a"], ["b"], ["c"], ["d"]]
        with pytest.raises(InferenceError) as caught:
            cancelled.result(TIMEOUT)
    assert caught.value.kind is ErrorKind.CANCELLED
    assert "x" not in [text for batch in blocked.batches for text in batch]


def test_number_of_requests_that_wait_for_a_batch_is_bounded() -> None:
    blocked = BlockedEcho()
    model = BatchingRunner(blocked, 1, 0.0)
    started = threading.Semaphore(0)

    def job_for(text: str) -> Callable[[], list[str]]:
        def run() -> list[str]:
            started.release()
            return [generation.text for generation in model([text])]

        return run

    with busy_workers(3) as workers:
        jobs = [submit_for(workers, "m", job_for(str(index))) for index in range(20)]
        assert blocked.started.acquire(timeout=TIMEOUT)
        while started.acquire(timeout=0.1):
            pass
        assert sum(job.running() for job in jobs) < 10
        blocked.released.set()
        assert [job.result(TIMEOUT) for job in jobs] == [[str(index)] for index in range(20)]


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", "bad"]), min_size=1, max_size=4), max_size=12),
    st.integers(2, 6),
    st.sampled_from([0.0, 0.001]),
)
def test_every_request_gets_its_own_results_in_order(
    requests: list[list[str]], max_size: int, max_delay: float
) -> None:
    echo, workers = Echo(), ThreadPool(3, "w")
    model = BatchingRunner(echo, max_size, max_delay)
    jobs = [submit(workers, model, *texts) for texts in requests]
    for texts, job in zip(requests, jobs, strict=True):
        if "bad" in texts:
            assert isinstance(job.exception(TIMEOUT), ValueError)
        else:
            assert job.result(TIMEOUT) == texts
    assert all(len(batch) <= max_size or batch in requests for batch in echo.batches)
    workers.close()


def test_batch_of_a_misbehaving_model_leaves_no_request_waiting() -> None:
    class Odd(Echo):
        def __call__(self, inputs: Sequence[str], /) -> Sequence[Generation]:
            if len(inputs) > 1:
                self.batches.append(list(inputs))
                if len(self.batches) == 1:
                    raise SystemExit(1)
                return []
            return super().__call__(inputs)

    model = BatchingRunner(Odd(), 2, LONG_DELAY)
    with busy_workers() as workers:
        for _ in range(2):
            jobs = [submit(workers, model, text) for text in "ab"]
            assert [job.result(TIMEOUT) for job in jobs] == [["a"], ["b"]]
