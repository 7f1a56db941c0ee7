"""A thread pool that limits the running threads. Threads that wait for other results release their slot."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

from app.core.engine.scheduling.fair_queue import FairQueue

T = TypeVar("T")

_NICENESS = 10
_LOWEST_PRIORITY = 19

_thread = threading.local()


class Job(Protocol):
    """Work for a thread of the pool."""

    def run(self) -> bool:
        """Do the work, in a worker. Return whether its duration counts. Must not raise."""
        ...

    def drop(self) -> None:
        """Handle that the pool was closed before the work started. Called in any thread."""
        ...


class _Worker:
    """A thread of the pool, parked on `wake` until it is given a job; woken without one, it ends."""

    __slots__ = ("entry", "wake")

    def __init__(self) -> None:
        self.entry: tuple[str, Job, float] | None = None
        self.wake = threading.Lock()
        self.wake.acquire()


class ThreadPool:
    """Run the jobs of one model in order, and of several models with fair queueing.

    Args:
        count: number of running threads, without those inside `release_worker`. Up to `count` more may run for models
            without a running job, so that no model waits for the end of another's long job. The operating system then
            schedules the threads.
        name: prefix of the names of the threads.
        low_priority: on Linux, run the threads only when other threads leave cores idle. They keep their slots inside
            `release_worker`.
    """

    def __init__(self, count: int, name: str, *, low_priority: bool = False) -> None:
        self._max_running = count
        self._name = name
        self._low_priority = low_priority
        # Reentrant: a finalizer that the garbage collector runs in a worker may call this object.
        self._lock = threading.RLock()
        self._queue: FairQueue[Job] = FairQueue()
        # The estimated seconds of the job of each worker, except released ones.
        self._estimates: dict[_Worker, float] = {}
        # The last parked worker is woken first, because its core's caches are still warm.
        self._parked: list[_Worker] = []
        self._spawned = 0
        # Workers with a job, except released ones.
        self._running = 0
        self._closed = False

    def add(self, model: str, job: Job) -> int:
        """Submit a job of a model, and return its id for `remove`. Raise RuntimeError if the pool is closed."""
        with self._lock:
            if self._closed:
                raise RuntimeError("The workers are closed")
            job_id = self._queue.add(model, job)
            try:
                self._start_jobs()
            except RuntimeError:
                self._queue.drop(model, job_id)
                raise
        return job_id

    def remove(self, model: str, job_id: int) -> bool:
        """Remove a job of a model that waits; return False if it has started or ended."""
        with self._lock:
            return self._queue.drop(model, job_id)

    def expected_wait(self, model: str) -> float:
        """Return the estimated seconds that one more job of a model will wait."""
        with self._lock:
            if self._running + self._queue.waiting < self._max_running or self._queue.is_idle(model):
                return 0.0
            queued, running = self._queue.estimated_wait(model), self._estimates.values()
            # Without jobs before it, a job gets the first worker that becomes free.
            return (queued + sum(running)) / self._max_running if queued else min(running, default=0.0)

    def release(self) -> None:
        """Release the slot of the calling worker."""
        with self._lock:
            self._running -= 1
            self._estimates.pop(_thread.worker, None)
            # Without a new thread, the job waits for an existing one.
            with suppress(RuntimeError):
                self._start_jobs()

    def reacquire(self) -> None:
        """Take a slot again. One thread more than `count` may run until a job is done."""
        with self._lock:
            self._running += 1

    def close(self) -> None:
        """Accept no more jobs, and cancel those that wait. Running jobs finish."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            dropped: list[Job] = []
            while (entry := self._queue.next()) is not None:
                dropped.append(entry[1])
            for worker in self._parked:
                worker.wake.release()
            self._parked.clear()
        # Outside the lock, because a job may call this object.
        for job in dropped:
            job.drop()

    @property
    def is_contended(self) -> bool:
        """Return whether more than one job runs or waits."""
        return self._running + self._queue.waiting > 1

    @property
    def _may_exceed(self) -> bool:
        """Return whether a job may start although all workers run: another model's long job must not delay it."""
        return self._running < 2 * self._max_running and self._queue.has_idle_model_waiting

    def _start_jobs(self) -> None:
        """Give waiting jobs to parked or new workers. Call this with the lock held.

        Raise RuntimeError if the first thread cannot be started.
        """
        while self._queue.waiting and (self._running < self._max_running or self._may_exceed):
            worker = self._parked.pop() if self._parked else self._spawn()
            if worker is None:
                return
            worker.entry = self._queue.next()
            self._running += 1
            self._estimates[worker] = worker.entry[2] if worker.entry is not None else 0.0
            worker.wake.release()

    def _spawn(self) -> _Worker | None:
        """Start a thread; return None if the system has no more threads, but the pool has some."""
        worker = _Worker()
        # The interpreter waits for threads that are not daemons before it exits.
        name = f"{self._name}-{self._spawned + 1}"
        thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._spawned:
                raise
            return None
        self._spawned += 1
        return worker

    def _run(self, worker: _Worker) -> None:
        if self._low_priority:
            lower_priority()
        else:
            _thread.pool, _thread.worker = self, worker
        worker.wake.acquire()
        while (entry := worker.entry) is not None:
            model, job, _ = entry
            # Charge running time only. For a batch, the leader's model is charged.
            _thread.waited, started = 0.0, time.perf_counter()
            ran = job.run()
            duration = time.perf_counter() - started - _thread.waited if ran else None
            # Drop the job's memory now, not when the next job starts.
            worker.entry = None
            del entry, job
            with self._lock:
                self._running -= 1
                self._estimates.pop(worker, None)
                self._queue.finish(model, duration)
                if self._closed:
                    return
                self._parked.append(worker)
                self._start_jobs()
            worker.wake.acquire()


@contextmanager
def release_worker() -> Generator[None]:
    """Release this worker's slot for another job while it waits for a result from elsewhere.

    Otherwise a model that never answers would block a worker for all other models. Does nothing outside a worker.
    """
    pool: ThreadPool | None = getattr(_thread, "pool", None)
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


def is_contended() -> bool:
    """Return whether jobs other than this thread's run or wait; False outside a worker."""
    pool: ThreadPool | None = getattr(_thread, "pool", None)
    return pool is not None and pool.is_contended


def lower_priority() -> None:
    """Lower the priority of the calling thread: Linux has one for each, under its thread id (setpriority(2))."""
    thread = threading.get_native_id()
    lower = os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS
    os.setpriority(os.PRIO_PROCESS, thread, min(_LOWEST_PRIORITY, lower))


async def run_in_daemon_thread(job: Callable[[], T], name: str = "loading") -> T:
    """Run `job` in a daemon thread called `name`, and return its result.

    The interpreter waits for executor threads at exit, but not for daemon threads: a model that hangs while it loads
    must not keep the server from stopping.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001  the awaiting coroutine raises it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await asyncio.wrap_future(future)
