"""A fair queue: choose the next job when jobs for several models wait."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

_NEWEST_WEIGHT = 0.2
"""Weight of the newest job in the moving average of job durations."""


class FairQueue(Generic[T]):
    """Waiting jobs by model. Not thread-safe.

    The next job belongs to the model with the least virtual time (start-time fair queueing: Goyal, Vin and Cheng,
    1996). Models without a running job come first. A model that returns after a pause continues at the current virtual
    time, so that idle models do not save up time.
    """

    def __init__(self) -> None:
        self._models: dict[str, _ModelQueue[T]] = {}
        self._virtual_now = 0.0
        self._last_job_id = 0
        self.waiting = 0
        """Number of jobs that wait."""

    def estimated_wait(self, model: str) -> float:
        """Return the estimated seconds of work before one more job of `model`.

        Another model gets at most as much time meanwhile as `model` itself, because the queue is fair.
        """
        queue = self._models[model]
        own_backlog = queue.backlog
        share = own_backlog + queue.mean
        return own_backlog + sum(min(other.backlog, share) for name, other in self._models.items() if name != model)

    def is_idle(self, model: str) -> bool:
        """Return whether no job of `model` waits or runs."""
        return model not in self._models or not (self._models[model].running or self._models[model].jobs)

    @property
    def has_idle_model_waiting(self) -> bool:
        """Return whether a model has waiting jobs but no running one."""
        return any(queue.jobs and not queue.running for queue in self._models.values())

    def add(self, model: str, job: T) -> int:
        """Add a job of `model`. Return its id for `drop`."""
        queue = self._models.get(model)
        if queue is None:
            queue = self._models[model] = _ModelQueue()
        if not queue.jobs and not queue.running:
            queue.virtual_time = max(queue.virtual_time, self._virtual_now)
        self._last_job_id += 1
        queue.jobs[self._last_job_id] = job
        self.waiting += 1
        return self._last_job_id

    def drop(self, model: str, job_id: int) -> bool:
        """Remove a cancelled job. Return False if the job does not wait."""
        if self._models[model].jobs.pop(job_id, None) is None:
            return False
        self.waiting -= 1
        return True

    def next(self) -> tuple[str, T, float] | None:
        """Remove the next job. Return its model, the job and its estimated seconds; None if no job waits."""
        first: tuple[bool, float, str] | None = None
        for name, queue in self._models.items():
            if queue.jobs:
                candidate = (queue.running > 0, queue.virtual_time, name)
                first = candidate if first is None else min(first, candidate)
        if first is None:
            return None
        _, self._virtual_now, name = first
        queue = self._models[name]
        _, job = queue.jobs.popitem(last=False)
        self.waiting -= 1
        queue.running += 1
        # Charge in advance, so that not all jobs of one model start before the first of them ends.
        queue.virtual_time += queue.mean
        queue.reserved.append(queue.mean)
        return name, job, queue.mean

    def finish(self, model: str, seconds: float | None) -> None:
        """Charge `model` for a job that ran for `seconds`; None for a job that never started."""
        queue = self._models[model]
        queue.running -= 1
        queue.virtual_time -= queue.reserved.popleft()
        if seconds is None:
            return
        queue.virtual_time += seconds
        queue.mean += _NEWEST_WEIGHT * (seconds - queue.mean) if queue.mean else seconds


class _ModelQueue(msgspec.Struct, Generic[T], eq=False):
    """The queue of one model.

    Attributes:
        jobs: waiting jobs by id.
        virtual_time: seconds that its jobs took, on the scale that all models share.
        mean: moving average of the duration of a job, in seconds.
        running: number of running jobs.
        reserved: the seconds that `virtual_time` was charged in advance for running jobs.
    """

    jobs: OrderedDict[int, T] = msgspec.field(default_factory=OrderedDict[int, T])
    reserved: deque[float] = msgspec.field(default_factory=deque[float])
    virtual_time: float = 0.0
    mean: float = 0.0
    running: int = 0

    @property
    def backlog(self) -> float:
        """Return the estimated seconds that the waiting jobs will take."""
        return len(self.jobs) * self.mean
