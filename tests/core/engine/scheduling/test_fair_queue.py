"""Fair queueing of jobs for several models."""

from collections import Counter

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
    assert queue.estimated_wait("a") == 0
    run_all(queue)
    for _ in range(3):
        queue.add("a", 2.0)
    assert queue.estimated_wait("a") == 6
    queue.next()
    assert queue.estimated_wait("a") == 4


def test_job_that_never_started_does_not_change_the_estimate() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.add("a", 2.0)
    run_all(queue)
    queue.add("a", 0.0)
    queue.next()
    queue.finish("a", None)
    queue.add("a", 2.0)
    assert queue.estimated_wait("a") == 2
