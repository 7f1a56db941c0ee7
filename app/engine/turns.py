"""Whose turn it is, when jobs for several models wait."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

__all__ = ("Turns",)

T = TypeVar("T")

_NEW = 0.2
"""Weight of the newest job in the moving mean of what jobs take."""


class Turns(Generic[T]):
    """Jobs that wait, by model. Not safe for threads by itself.

    A model that has had the least time goes first (start-time fair queueing: Goyal, Vin and Cheng, 1996), one of which
    nothing is running before all others. A model that comes back after a pause begins where the others are, so that
    nobody saves up time.
    """

    def __init__(self) -> None:
        self._models: dict[str, _Model[T]] = {}
        self._now = 0.0
        self._added = 0
        self.waiting = 0
        """How many jobs wait."""

    @property
    def backlog(self) -> float:
        """Seconds that the jobs that wait will take, judged by earlier ones."""
        return sum(each.backlog for each in self._models.values())

    def ahead(self, model: str) -> float:
        """Seconds of jobs that are done before one more job of `model`, judged by earlier ones.

        Those of other models count for as much as `model` itself has to do by then: they take turns.
        """
        queue = self._models.get(model)
        own = queue.backlog if queue else 0.0
        turn = own + (queue.mean if queue else 0.0)
        return own + sum(min(each.backlog, turn) for name, each in self._models.items() if name != model)

    def is_idle(self, model: str) -> bool:
        """Whether no job of `model` waits or runs."""
        return model not in self._models or not (self._models[model].running or self._models[model].jobs)

    @property
    def has_idle_model_waiting(self) -> bool:
        """Whether a model has jobs that wait and none that runs."""
        return any(each.jobs and not each.running for each in self._models.values())

    def add(self, model: str, job: T) -> int:
        """Have `job` wait for `model`'s turn. Returns what `drop` knows it by."""
        queue = self._models.get(model)
        if queue is None:
            queue = self._models[model] = _Model()
        if not queue.jobs and not queue.running:
            queue.had = max(queue.had, self._now)
        self._added += 1
        queue.jobs[self._added] = (job, queue.mean)
        queue.backlog += queue.mean
        self.waiting += 1
        return self._added

    def drop(self, model: str, number: int) -> None:
        """Forget a job that nobody wants any more. Nothing happens when it does not wait any more."""
        queue = self._models[model]
        dropped = queue.jobs.pop(number, None)
        if dropped is not None:
            self._wait_no_more(queue, dropped[1])

    def next(self) -> tuple[str, T] | None:
        """The job whose turn it is, and its model; None when none waits."""
        waiting = [(each.running > 0, each.had, name) for name, each in self._models.items() if each.jobs]
        if not waiting:
            return None
        _, self._now, name = min(waiting)
        queue = self._models[name]
        _, (job, expected) = queue.jobs.popitem(last=False)
        self._wait_no_more(queue, expected)
        queue.running += 1
        # Charged in advance, so that a model's many jobs are not all begun before the first of them has ended.
        queue.had += expected
        queue.charged.append(expected)
        return name, job

    def done(self, model: str, seconds: float | None) -> None:
        """A job of `model` has ended after `seconds`; None for one that was never begun."""
        queue = self._models[model]
        queue.running -= 1
        queue.had -= queue.charged.popleft()
        if seconds is None:
            return
        queue.had += seconds
        queue.mean = seconds if queue.mean == 0 else (1 - _NEW) * queue.mean + _NEW * seconds

    def _wait_no_more(self, queue: "_Model[T]", expected: float) -> None:
        self.waiting -= 1
        # What rounding has left is not to add up.
        queue.backlog = queue.backlog - expected if queue.jobs else 0.0


class _Model(Generic[T]):
    """Jobs of one model that wait, by number, with the seconds that each was expected to take.

    Attributes:
        backlog: the sum of those.
        had: seconds that its jobs took, on the scale that all models share.
        mean: seconds that a job takes, moving.
        running: how many jobs are being done.
        charged: what `had` was raised by for those, in advance.
    """

    __slots__ = ("backlog", "charged", "had", "jobs", "mean", "running")

    def __init__(self) -> None:
        self.jobs: OrderedDict[int, tuple[T, float]] = OrderedDict()
        self.backlog = 0.0
        self.charged: deque[float] = deque()
        self.had = 0.0
        self.mean = 0.0
        self.running = 0
