"""Whose turn it is, when jobs for several models wait."""

from collections import deque
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
        self.waiting = 0
        """How many jobs wait."""
        self.backlog = 0.0
        """Seconds that they will take, judged by earlier ones."""

    def is_idle(self, model: str) -> bool:
        """Whether no job of `model` waits or runs."""
        return model not in self._models or not (self._models[model].running or self._models[model].jobs)

    @property
    def has_idle_model_waiting(self) -> bool:
        """Whether a model has jobs that wait and none that runs."""
        return any(each.jobs and not each.running for each in self._models.values())

    def add(self, model: str, job: T) -> None:
        """Have `job` wait for `model`'s turn."""
        queue = self._models.get(model)
        if queue is None:
            queue = self._models[model] = _Model()
        if not queue.jobs and not queue.running:
            queue.had = max(queue.had, self._now)
        queue.jobs.append((job, queue.mean))
        self.waiting += 1
        self.backlog += queue.mean

    def next(self) -> tuple[str, T] | None:
        """The job whose turn it is, and its model; None when none waits."""
        waiting = [(each.running > 0, each.had, name) for name, each in self._models.items() if each.jobs]
        if not waiting:
            self.backlog = 0.0
            return None
        _, self._now, name = min(waiting)
        queue = self._models[name]
        job, expected = queue.jobs.popleft()
        self.waiting -= 1
        self.backlog -= expected
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


class _Model(Generic[T]):
    """Jobs of one model that wait, with the seconds that each was expected to take.

    Attributes:
        had: seconds that its jobs took, on the scale that all models share.
        mean: seconds that a job takes, moving.
        running: how many jobs are being done.
        charged: what `had` was raised by for those, in advance.
    """

    __slots__ = ("charged", "had", "jobs", "mean", "running")

    def __init__(self) -> None:
        self.jobs: deque[tuple[T, float]] = deque()
        self.charged: deque[float] = deque()
        self.had = 0.0
        self.mean = 0.0
        self.running = 0
