"""A thread pool that limits the running threads. Threads that wait for other results release their place."""

import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from app.engine.turns import FairQueue

__all__ = ("Workers", "has_company", "waiting_elsewhere")

P = ParamSpec("P")
T = TypeVar("T")

_Work = Callable[[], None]

_OVERDUE = 0.25
"""The share of its estimated duration that an overdue job is assumed to need still."""

_SLOWER = 1.25
"""Factor by which all jobs of a queue may take longer together, where other processes take the machine meanwhile."""

_thread = threading.local()


class Workers:
    """Run jobs: those of one model in order, those of several models with fair queueing.

    Args:
        count: number of running threads, without those that are `waiting_elsewhere`. As many more may run for models
            without a running job, so that no model waits for the end of another's long job. The operating system then
            schedules the threads.
        name: prefix of the names of the threads.
    """

    def __init__(self, count: int, name: str) -> None:
        self._pool = _ThreadPool(count, name)
        # The threads refer to the pool only, so that unused workers are closed by the garbage collector.
        weakref.finalize(self, self._pool.close)

    def submit(self, job: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Submit a job that belongs to no model.

        Raises:
            RuntimeError: if the workers are closed.
        """
        return self.submit_for("", partial(job, *args, **kwargs))

    def submit_for(self, model: str, job: Callable[[], T]) -> "Future[T]":
        """Submit a job of `model`.

        Raises:
            RuntimeError: if the workers are closed.
        """
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001  `future.result` raises it
                future.set_exception(error)
            else:
                future.set_result(result)

        number = self._pool.add(model, work, future)
        # Remove cancelled jobs now: this frees their memory and keeps wait estimates right.
        future.add_done_callback(partial(self._pool.drop, model, number))
        return future

    def expected_wait(self, model: str) -> float:
        """Return the estimated seconds that one more job of `model` will wait."""
        return self._pool.expected_wait(model)

    def close(self) -> None:
        """Accept no more jobs, and cancel those that wait. Running jobs finish."""
        self._pool.close()


@contextmanager
def waiting_elsewhere() -> Generator[None]:
    """Release this worker's place for another job while it waits for a result from elsewhere.

    Otherwise a model that never answers would block a worker for all other models. Does nothing outside a worker.
    """
    pool: _ThreadPool | None = getattr(_thread, "pool", None)
    if pool is None:
        yield
        return
    pool.release()
    started = time.perf_counter()
    try:
        yield
    finally:
        _thread.waited += time.perf_counter() - started
        pool.reacquire()


def has_company() -> bool:
    """Return whether jobs other than this thread's run or wait; False outside a worker."""
    pool: _ThreadPool | None = getattr(_thread, "pool", None)
    return pool is not None and pool.is_contended


class _ThreadPool:
    """The threads and the queue of jobs."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._lock = threading.Lock()
        self._queue: FairQueue[tuple[_Work, Future[Any]]] = FairQueue()
        # By thread: the estimated end of its job, and the seconds that the job is assumed to need after that.
        self._ends: dict[int, tuple[float, float]] = {}
        # One ticket for every job that waits or was dropped, and None for every thread to stop.
        self._tickets: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        # Idle threads wait here: True wakes one up, False stops it.
        self._wake_ups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._spawned = 0
        # Threads that run a job or wait for a ticket; neither released nor idle.
        self._active = 0
        self._running = 0
        self._idle = 0
        self._closed = False

    def add(self, model: str, work: _Work, future: Future[Any]) -> int:
        with self._lock:
            if self._closed:
                raise RuntimeError("The workers are closed")
            if self._active < self._count or (self._may_add_thread and self._queue.is_idle(model)):
                self._spawn()
            number = self._queue.add(model, (work, future))
            self._tickets.put(True)
        return number

    def drop(self, model: str, number: int, future: Future[Any]) -> None:
        """Remove a waiting job if its future was cancelled."""
        if future.cancelled():
            with self._lock:
                self._queue.drop(model, number)

    def expected_wait(self, model: str) -> float:
        with self._lock:
            if self._running + self._queue.waiting < self._count or self._queue.is_idle(model):
                return 0.0
            now = time.perf_counter()
            left = [max(end - now, least) for end, least in self._ends.values()]
            ahead = self._queue.ahead(model)
            # Without jobs before it, a job gets the first worker that becomes free.
            wait = (ahead + sum(left)) / self._count if ahead else min(left, default=0.0)
            return _SLOWER * wait + self._queue.margin(model) / self._count

    def release(self) -> None:
        """Release the place of the calling worker."""
        with self._lock:
            self._active -= 1
            self._running -= 1
            self._ends.pop(threading.get_ident(), None)
            if self._active < self._count and not self._closed:
                self._spawn()

    def reacquire(self) -> None:
        """Take a place again. One thread too many may run until the first of them is done."""
        with self._lock:
            self._active += 1
            self._running += 1

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            dropped: list[Future[Any]] = []
            while (waiting := self._queue.next()) is not None:
                dropped.append(waiting[1][1])
            for _ in range(self._spawned):
                self._tickets.put(None)
                self._wake_ups.put(False)
        # Cancel outside the lock: callbacks of the futures may call this object.
        for future in dropped:
            future.cancel()

    @property
    def is_contended(self) -> bool:
        """Return whether more than one job runs or waits."""
        return self._running + self._queue.waiting > 1

    @property
    def _may_add_thread(self) -> bool:
        """Return whether a job would have to wait, and one more thread is allowed."""
        return self._active < 2 * self._count and self._running + self._queue.waiting >= self._active

    def _spawn(self) -> None:
        """Wake up an idle thread or start a new one. Call this with the lock held."""
        self._active += 1
        if self._idle:
            self._idle -= 1
            self._wake_ups.put(True)
            return
        self._spawned += 1
        # The interpreter waits for threads that are not daemons before it exits.
        thread = threading.Thread(target=self._work, name=f"{self._name}-{self._spawned}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no more threads: use the existing ones.
            self._active -= 1
            self._spawned -= 1
            if not self._spawned:
                raise

    def _work(self) -> None:
        _thread.pool = self
        ident = threading.get_ident()
        while self._is_wanted() and self._tickets.get() is not None:
            with self._lock:
                taken = self._queue.next()
                if taken is None:
                    continue
                model, (work, future) = taken
                self._running += 1
                started, expected = time.perf_counter(), self._queue.expected(model)
                self._ends[ident] = started + expected, expected * _OVERDUE
            # Charge running time only. For a batch, the leader's model is charged.
            _thread.waited = 0.0
            work()
            spent = None if future.cancelled() else time.perf_counter() - started - _thread.waited
            # Drop the job's memory now, not when the next job starts.
            del taken, work, future
            with self._lock:
                self._running -= 1
                self._ends.pop(ident, None)
                self._queue.done(model, spent)

    def _is_wanted(self) -> bool:
        """Wait while more threads are active than may run. Return False if the pool is closed."""
        if self._active <= self._count:
            return True
        with self._lock:
            if self._active <= self._count or self._queue.has_idle_model_waiting:
                return True
            self._active -= 1
            self._idle += 1
        return self._wake_ups.get()
