"""Fair queueing of jobs for several models."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.core.engine.scheduling.fair_queue import FairQueue


def run_all(queue: FairQueue[float]) -> list[str]:
    """Run all jobs one after the other and return their models; a job is its duration in seconds."""
    order: list[str] = []
    while (job_of_model := queue.next()) is not None:
        model, seconds, _ = job_of_model
        queue.finish(model, seconds)
        order.append(model)
    return order


def test_models_with_long_and_short_jobs_get_equal_time() -> None:
    queue: FairQueue[float] = FairQueue()
    for _ in range(10):
        queue.add("slow", 1.0)
    for _ in range(100):
        queue.add("fast", 0.1)
    order = run_all(queue)
    first_half = Counter(order[:55])
    assert 4 <= first_half["slow"] <= 6
    assert 45 <= first_half["fast"] <= 51


def test_idle_model_does_not_accumulate_time() -> None:
    queue: FairQueue[float] = FairQueue()
    for _ in range(100):
        queue.add("busy", 1.0)
    for _ in range(50):
        model, seconds, _ = queue.next() or ("", 0, 0)
        queue.finish(model, seconds)
    for _ in range(50):
        queue.add("rested", 1.0)
    shares = Counter(run_all(queue)[:20])
    assert abs(shares["rested"] - shares["busy"]) <= 2


def test_model_without_running_job_goes_first() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.add("a", 1.0)
    queue.add("a", 1.0)
    assert queue.next() == ("a", 1.0, 0.0)
    queue.add("b", 1.0)
    assert queue.has_idle_model_waiting
    assert queue.next() == ("b", 1.0, 0.0)
    assert not queue.has_idle_model_waiting


def test_backlog_is_estimated_from_earlier_jobs() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.add("a", 2.0)
    assert queue.backlog == 0
    run_all(queue)
    for _ in range(3):
        queue.add("a", 2.0)
    assert queue.backlog == 6
    queue.next()
    assert queue.backlog == 4


def test_job_that_never_started_does_not_change_the_estimate() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.add("a", 2.0)
    run_all(queue)
    queue.add("a", 0.0)
    queue.next()
    queue.finish("a", None)
    queue.add("a", 2.0)
    assert queue.backlog == 2


class FairQueueMachine(RuleBasedStateMachine):
    """Add, drop, start and finish jobs in any order: no job is lost or started twice, and the sums are right."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue()
        self.waiting: dict[str, dict[int, int]] = {model: {} for model in "abc"}
        self.running: list[str] = []
        self.count = 0

    @rule(model=st.sampled_from("abc"))
    def add_job(self, model: str) -> None:
        self.count += 1
        self.waiting[model][self.queue.add(model, self.count)] = self.count

    @rule(model=st.sampled_from("abc"), index=st.integers(0, 5))
    def drop_job(self, model: str, index: int) -> None:
        job_ids = list(self.waiting[model])
        if index < len(job_ids):
            self.queue.drop(model, job_ids[index])
            self.queue.drop(model, job_ids[index])
            del self.waiting[model][job_ids[index]]

    @rule()
    def start_job(self) -> None:
        job_of_model = self.queue.next()
        if job_of_model is None:
            assert not any(self.waiting.values())
            return
        model, job, _ = job_of_model
        first = next(iter(self.waiting[model]))
        assert self.waiting[model].pop(first) == job
        idle = [name for name, jobs in self.waiting.items() if jobs and name not in self.running]
        assert model not in self.running or not idle
        self.running.append(model)

    @rule(index=st.integers(0, 5), seconds=st.one_of(st.none(), st.floats(0, 100)))
    def finish_job(self, index: int, seconds: float | None) -> None:
        if index < len(self.running):
            self.queue.finish(self.running.pop(index), seconds)

    @invariant()
    def adds_up(self) -> None:
        assert self.queue.waiting == sum(map(len, self.waiting.values()))
        assert self.queue.backlog >= -1e-6
        for model, jobs in self.waiting.items():
            is_idle = not jobs and model not in self.running
            assert self.queue.is_idle(model) == is_idle
            assert is_idle or -1e-6 <= self.queue.estimated_wait(model) <= self.queue.backlog + 1e-6


TestFairQueueMachine = FairQueueMachine.TestCase
TestFairQueueMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
