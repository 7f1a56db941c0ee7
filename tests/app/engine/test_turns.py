"""Whose turn it is when jobs for several models wait."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from app.engine.turns import Turns


def run(turns: Turns[float]) -> list[str]:
    """Every job in its turn, one after the other; a job is the seconds it takes."""
    order: list[str] = []
    while (taken := turns.next()) is not None:
        model, seconds = taken
        turns.done(model, seconds)
        order.append(model)
    return order


def test_jobs_of_one_model_keep_their_order() -> None:
    turns: Turns[float] = Turns()
    for seconds in (3.0, 1.0, 2.0):
        turns.add("a", seconds)
    assert [turns.next() for _ in range(4)] == [("a", 3.0), ("a", 1.0), ("a", 2.0), None]


def test_a_model_of_long_jobs_gets_as_much_time_as_one_of_short_ones() -> None:
    turns: Turns[float] = Turns()
    for _ in range(10):
        turns.add("slow", 1.0)
    for _ in range(100):
        turns.add("fast", 0.1)
    order = run(turns)
    half = Counter(order[:55])
    assert 4 <= half["slow"] <= 6
    assert 45 <= half["fast"] <= 51


def test_nobody_saves_up_time() -> None:
    turns: Turns[float] = Turns()
    for _ in range(100):
        turns.add("busy", 1.0)
    for _ in range(50):
        model, seconds = turns.next() or ("", 0)
        turns.done(model, seconds)
    for _ in range(50):
        turns.add("rested", 1.0)
    shares = Counter(run(turns)[:20])
    assert abs(shares["rested"] - shares["busy"]) <= 2


def test_a_model_of_which_nothing_runs_goes_first() -> None:
    turns: Turns[float] = Turns()
    turns.add("a", 1.0)
    turns.add("a", 1.0)
    assert turns.next() == ("a", 1.0)
    turns.add("b", 1.0)
    assert turns.has_idle_model_waiting
    assert turns.next() == ("b", 1.0)
    assert not turns.has_idle_model_waiting


def test_the_backlog_is_what_earlier_jobs_took() -> None:
    turns: Turns[float] = Turns()
    turns.add("a", 2.0)
    assert turns.backlog == 0
    run(turns)
    for _ in range(3):
        turns.add("a", 2.0)
    assert turns.backlog == 6
    turns.next()
    assert turns.backlog == 4


def test_a_job_that_was_never_begun_says_nothing_about_the_others() -> None:
    turns: Turns[float] = Turns()
    turns.add("a", 2.0)
    run(turns)
    turns.add("a", 0.0)
    turns.next()
    turns.done("a", None)
    turns.add("a", 2.0)
    assert turns.backlog == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.001, 10)), max_size=40))
def test_every_job_gets_its_turn_once(jobs: list[tuple[str, float]]) -> None:
    turns: Turns[float] = Turns()
    for model, seconds in jobs:
        turns.add(model, seconds)
    assert turns.waiting == len(jobs)
    assert Counter(run(turns)) == Counter(model for model, _ in jobs)
    assert (turns.waiting, turns.backlog) == (0, 0)
