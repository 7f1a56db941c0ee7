"""Whose turn it is when jobs for several models wait."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.engine.turns import FairQueue


def run(turns: FairQueue[float]) -> list[str]:
    """Every job in its turn, one after the other; a job is the seconds it takes."""
    order: list[str] = []
    while (taken := turns.next()) is not None:
        model, seconds = taken
        turns.done(model, seconds)
        order.append(model)
    return order


def test_jobs_of_one_model_keep_their_order() -> None:
    turns: FairQueue[float] = FairQueue()
    for seconds in (3.0, 1.0, 2.0):
        turns.add("a", seconds)
    assert [turns.next() for _ in range(4)] == [("a", 3.0), ("a", 1.0), ("a", 2.0), None]


def test_a_model_of_long_jobs_gets_as_much_time_as_one_of_short_ones() -> None:
    turns: FairQueue[float] = FairQueue()
    for _ in range(10):
        turns.add("slow", 1.0)
    for _ in range(100):
        turns.add("fast", 0.1)
    order = run(turns)
    half = Counter(order[:55])
    assert 4 <= half["slow"] <= 6
    assert 45 <= half["fast"] <= 51


def test_nobody_saves_up_time() -> None:
    turns: FairQueue[float] = FairQueue()
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
    turns: FairQueue[float] = FairQueue()
    turns.add("a", 1.0)
    turns.add("a", 1.0)
    assert turns.next() == ("a", 1.0)
    turns.add("b", 1.0)
    assert turns.has_idle_model_waiting
    assert turns.next() == ("b", 1.0)
    assert not turns.has_idle_model_waiting


def test_the_backlog_is_what_earlier_jobs_took() -> None:
    turns: FairQueue[float] = FairQueue()
    turns.add("a", 2.0)
    assert turns.backlog == 0
    run(turns)
    for _ in range(3):
        turns.add("a", 2.0)
    assert turns.backlog == 6
    turns.next()
    assert turns.backlog == 4


def test_a_job_that_was_never_begun_says_nothing_about_the_others() -> None:
    turns: FairQueue[float] = FairQueue()
    turns.add("a", 2.0)
    run(turns)
    turns.add("a", 0.0)
    turns.next()
    turns.done("a", None)
    turns.add("a", 2.0)
    assert turns.backlog == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.001, 10)), max_size=40))
def test_every_job_gets_its_turn_once(jobs: list[tuple[str, float]]) -> None:
    turns: FairQueue[float] = FairQueue()
    for model, seconds in jobs:
        turns.add(model, seconds)
    assert turns.waiting == len(jobs)
    assert Counter(run(turns)) == Counter(model for model, _ in jobs)
    assert (turns.waiting, turns.backlog) == (0, 0)


class Exactly(RuleBasedStateMachine):
    """Jobs come, are dropped, begin and end in any order: none is lost, none begins twice, and the sums are right."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: FairQueue[int] = FairQueue()
        self.waiting: dict[str, dict[int, int]] = {model: {} for model in "abc"}
        self.running: list[str] = []
        self.count = 0

    @rule(model=st.sampled_from("abc"))
    def come(self, model: str) -> None:
        self.count += 1
        self.waiting[model][self.turns.add(model, self.count)] = self.count

    @rule(model=st.sampled_from("abc"), place=st.integers(0, 5))
    def drop(self, model: str, place: int) -> None:
        numbers = list(self.waiting[model])
        if place < len(numbers):
            self.turns.drop(model, numbers[place])
            self.turns.drop(model, numbers[place])
            del self.waiting[model][numbers[place]]

    @rule()
    def begin(self) -> None:
        taken = self.turns.next()
        if taken is None:
            assert not any(self.waiting.values())
            return
        model, job = taken
        first = next(iter(self.waiting[model]))
        assert self.waiting[model].pop(first) == job
        idle = [name for name, jobs in self.waiting.items() if jobs and name not in self.running]
        assert model not in self.running or not idle
        self.running.append(model)

    @rule(place=st.integers(0, 5), seconds=st.one_of(st.none(), st.floats(0, 100)))
    def end(self, place: int, seconds: float | None) -> None:
        if place < len(self.running):
            self.turns.done(self.running.pop(place), seconds)

    @invariant()
    def adds_up(self) -> None:
        assert self.turns.waiting == sum(map(len, self.waiting.values()))
        assert self.turns.backlog >= -1e-6
        for model, jobs in self.waiting.items():
            assert self.turns.is_idle(model) == (not jobs and model not in self.running)
            assert -1e-6 <= self.turns.ahead(model) <= self.turns.backlog + 1e-6


TestExactly = Exactly.TestCase
TestExactly.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
