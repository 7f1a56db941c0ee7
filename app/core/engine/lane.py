"""Lanes: worker threads with a queue of their own, for long requests that must not delay others."""

import msgspec

from app.core.engine.scheduling.admission import Admission, ClientLimit, QueueLimits
from app.core.engine.scheduling.thread_pool import ThreadPool

_WAITING_PER_WORKER = 2


class Lane(msgspec.Struct, frozen=True, eq=False):
    """The worker threads and the limits of one kind of requests. Their queue is the same for all models."""

    pool: ThreadPool
    admission: Admission


def open_lane(
    name: str, workers: int, request_timeout: float | None, clients: ClientLimit, *, low_priority: bool
) -> Lane:
    """Start the threads of a lane. Twice as many requests may wait. `name` is singular, as in names of threads."""
    pool = ThreadPool(workers, name, low_priority=low_priority)
    limits = QueueLimits(max_waiting=_WAITING_PER_WORKER * workers, request_timeout=request_timeout)
    admission = Admission(workers, limits, lambda _: None, lambda: False, pool.expected_wait, clients, f"{name}s")
    return Lane(pool, admission)
