"""Several requests, one call of the model: nobody notices but the model."""

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.batching import BatchingModel
from app.engine.interest import CancellationToken, on_behalf_of
from app.engine.workers import Workers
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.text_generation import Generation

SECONDS = 30
LONG = 20.0


class Echo:
    """Says what it is told, and keeps the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, inputs: Sequence[str], /) -> Sequence[Generation]:
        self.batches.append(list(inputs))
        if "bad" in inputs:
            raise ValueError("a bad input")
        return [Generation(each) for each in inputs if each != "lost"]


class Held(Echo):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.let = threading.Event()

    def __call__(self, inputs: Sequence[str], /) -> Sequence[Generation]:
        self.begun.release()
        assert self.let.wait(SECONDS)
        return super().__call__(inputs)


@contextmanager
def occupied(count: int = 2) -> Generator[Workers]:
    """Workers of whom one has something else to do, so that nobody is alone."""
    workers, done = Workers(count, "w"), threading.Event()
    other = workers.submit(done.wait, SECONDS)
    try:
        yield workers
    finally:
        done.set()
        other.result(SECONDS)
        workers.close()


def ask(workers: Workers, model: BatchingModel[str, Generation], *texts: str) -> "Future[list[str]]":
    return workers.submit_for("m", lambda: [each.text for each in model(texts)])


def test_requests_that_come_together_are_one_call() -> None:
    echo = Echo()
    model = BatchingModel(echo, 4, LONG)
    with occupied() as workers:
        asked = [ask(workers, model, *texts) for texts in (["a"], ["b", "c"], ["d"])]
        assert [each.result(SECONDS) for each in asked] == [["a"], ["b", "c"], ["d"]]
    assert sorted(echo.batches[0]) == ["a", "b", "c", "d"]
    assert len(echo.batches) == 1


def test_one_that_is_alone_waits_for_nobody() -> None:
    echo, workers = Echo(), Workers(2, "w")
    assert ask(workers, BatchingModel(echo, 4, LONG), "a").result(SECONDS / 3) == ["a"]
    assert [each.text for each in BatchingModel(echo, 4, LONG)(["b"])] == ["b"]
    workers.close()


def test_after_the_delay_whoever_is_there_is_taken() -> None:
    echo = Echo()
    with occupied() as workers:
        assert ask(workers, BatchingModel(echo, 4, 0.01), "a").result(SECONDS) == ["a"]
    assert echo.batches == [["a"]]


def test_the_next_batch_gathers_while_one_is_under_way() -> None:
    held = Held()
    model = BatchingModel(held, 2, LONG)
    with occupied() as workers:
        first = [ask(workers, model, text) for text in "ab"]
        assert held.begun.acquire(timeout=SECONDS)
        second = [ask(workers, model, text) for text in "cd"]
        held.let.set()
        assert [each.result(SECONDS) for each in (*first, *second)] == [["a"], ["b"], ["c"], ["d"]]
    assert sorted(map(sorted, held.batches)) == [["a", "b"], ["c", "d"]]


def test_only_the_request_that_makes_the_model_fail_fails() -> None:
    echo = Echo()
    model = BatchingModel(echo, 4, LONG)
    with occupied() as workers:
        asked = {text: ask(workers, model, text) for text in ("a", "bad", "b", "c")}
        for text in "abc":
            assert asked[text].result(SECONDS) == [text]
        with pytest.raises(ValueError, match="bad input"):
            asked["bad"].result(SECONDS)
    assert len(echo.batches) == 5


def test_a_model_that_loses_an_answer_is_asked_again_one_by_one() -> None:
    echo = Echo()
    model = BatchingModel(echo, 2, LONG)
    with occupied() as workers:
        whole, lost = ask(workers, model, "a"), ask(workers, model, "lost")
        assert whole.result(SECONDS) == ["a"]
        assert lost.result(SECONDS) == []


def test_a_request_of_more_than_a_batch_is_one_by_itself() -> None:
    echo = Echo()
    model = BatchingModel(echo, 2, 0.0)
    assert [each.text for each in model(["a", "b", "c"])] == ["a", "b", "c"]
    assert echo.batches == [["a", "b", "c"]]


def test_a_request_whose_sender_has_left_is_left_out() -> None:
    held = Held()
    model = BatchingModel(held, 2, 0.05)
    gone = CancellationToken()

    def ask_for_nobody() -> list[str]:
        with on_behalf_of(gone):
            return [each.text for each in model(["x"])]

    with occupied() as workers:
        first = [ask(workers, model, text) for text in "ab"]
        assert held.begun.acquire(timeout=SECONDS)
        gone.leave()
        nobody = workers.submit_for("m", ask_for_nobody)
        later = [ask(workers, model, text) for text in "cd"]
        held.let.set()
        assert [each.result(SECONDS) for each in (*first, *later)] == [["a"], ["b"], ["c"], ["d"]]
        with pytest.raises(InferenceError) as caught:
            nobody.result(SECONDS)
    assert caught.value.kind is ErrorKind.CANCELLED
    assert "x" not in [each for batch in held.batches for each in batch]


def test_no_more_wait_with_their_inputs_than_are_soon_looked_at() -> None:
    held = Held()
    model = BatchingModel(held, 1, 0.0)
    begun = threading.Semaphore(0)

    def asked(text: str) -> Callable[[], list[str]]:
        def run() -> list[str]:
            begun.release()
            return [each.text for each in model([text])]

        return run

    with occupied(3) as workers:
        jobs = [workers.submit_for("m", asked(str(index))) for index in range(20)]
        assert held.begun.acquire(timeout=SECONDS)
        while begun.acquire(timeout=0.1):
            pass
        assert sum(each.running() for each in jobs) < 10
        held.let.set()
        assert [each.result(SECONDS) for each in jobs] == [[str(index)] for index in range(20)]


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", "bad"]), min_size=1, max_size=4), max_size=12),
    st.integers(2, 6),
    st.sampled_from([0.0, 0.001]),
)
def test_everybody_gets_their_own_answers_in_their_order(
    asked: list[list[str]], max_size: int, max_delay: float
) -> None:
    echo, workers = Echo(), Workers(3, "w")
    model = BatchingModel(echo, max_size, max_delay)
    jobs = [ask(workers, model, *texts) for texts in asked]
    for texts, job in zip(asked, jobs, strict=True):
        if "bad" in texts:
            assert isinstance(job.exception(SECONDS), ValueError)
        else:
            assert job.result(SECONDS) == texts
    assert all(len(batch) <= max_size or batch in asked for batch in echo.batches)
    workers.close()


def test_whatever_a_model_raises_or_answers_nobody_is_left_waiting() -> None:
    class Odd(Echo):
        def __call__(self, inputs: Sequence[str], /) -> Sequence[Generation]:
            if len(inputs) > 1:
                self.batches.append(list(inputs))
                if len(self.batches) == 1:
                    raise SystemExit(1)
                return iter(())  # pyright: ignore[reportReturnType]
            return super().__call__(inputs)

    model = BatchingModel(Odd(), 2, LONG)
    with occupied() as workers:
        for _ in range(2):
            both = [ask(workers, model, text) for text in "ab"]
            assert [each.result(SECONDS) for each in both] == [["a"], ["b"]]
