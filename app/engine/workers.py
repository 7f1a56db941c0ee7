"""The threads that answer requests: so many at work at once, however many more wait for something else."""

import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from app.engine.turns import Turns

__all__ = ("Workers", "has_company", "waiting_elsewhere")

P = ParamSpec("P")
T = TypeVar("T")

_Work = Callable[[], None]

_here = threading.local()


class Workers:
    """Runs jobs, those for one model in the order in which they come, and those for several in fair turns.

    Args:
        count: so many threads are at work at once. One that is `waiting_elsewhere` is not at work. As many more may be
            at work for models of which no job is running, so that no model waits for the end of another's long job: the
            operating system then shares the cores out.
        name: what the threads' names begin with.
    """

    def __init__(self, count: int, name: str) -> None:
        self._crew = _Crew(count, name)
        # The threads hold the crew alone, so that workers nobody uses any more are sent home.
        weakref.finalize(self, self._crew.close)

    def submit(self, job: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Have `job` run by one of the threads, for no model in particular.

        Raises:
            RuntimeError: when the workers take no more jobs.
        """
        return self.submit_for("", partial(job, *args, **kwargs))

    def submit_for(self, model: str, job: Callable[[], T]) -> "Future[T]":
        """Have `job` run by one of the threads in `model`'s turn.

        Raises:
            RuntimeError: when the workers take no more jobs.
        """
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001  it belongs to whoever waits for the job
                future.set_exception(error)
            else:
                future.set_result(result)

        number = self._crew.add(model, work, future)
        # What a request holds is not to wait with those that are still wanted, nor to be reckoned with.
        future.add_done_callback(partial(self._crew.drop, model, number))
        return future

    def expected_wait(self, model: str) -> float:
        """Seconds that one more job for `model` is likely to wait, judged by what jobs took lately."""
        return self._crew.expected_wait(model)

    def close(self) -> None:
        """Take no more jobs, and drop those that wait; those in hand are finished."""
        self._crew.close()


@contextmanager
def waiting_elsewhere() -> Generator[None]:
    """Let another job take this thread's place while it waits for a result that is made elsewhere.

    Without this, a model that never answers would keep a worker from all the others. It does nothing in a thread that
    is no worker.
    """
    crew: _Crew | None = getattr(_here, "crew", None)
    if crew is None:
        yield
        return
    crew.step_aside()
    began = time.perf_counter()
    try:
        yield
    finally:
        _here.elsewhere += time.perf_counter() - began
        crew.step_back()


def has_company() -> bool:
    """Whether jobs other than this thread's are being done or wait. No in a thread that is no worker."""
    crew: _Crew | None = getattr(_here, "crew", None)
    return crew is not None and crew.has_company


class _Crew:
    """The threads, and the jobs that wait for them."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._lock = threading.Lock()
        self._turns: Turns[tuple[_Work, Future[Any]]] = Turns()
        # One for every job that waits or was dropped, and None for every thread that is to go home.
        self._tickets: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._bench: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._made = 0
        # Those that look for jobs or are at one: neither waiting elsewhere nor on the bench.
        self._active = 0
        self._at_work = 0
        self._benched = 0
        self._closed = False

    def add(self, model: str, work: _Work, future: Future[Any]) -> int:
        with self._lock:
            if self._closed:
                raise RuntimeError("The workers take no more jobs")
            if self._active < self._count or (self._all_at_work and self._turns.is_idle(model)):
                self._call_up()
            number = self._turns.add(model, (work, future))
            self._tickets.put(True)
        return number

    def drop(self, model: str, number: int, future: Future[Any]) -> None:
        """Forget a job that waits, if that is why it is done with."""
        if future.cancelled():
            with self._lock:
                self._turns.drop(model, number)

    def expected_wait(self, model: str) -> float:
        with self._lock:
            if self._at_work + self._turns.waiting < self._count or self._turns.is_idle(model):
                return 0.0
            return self._turns.ahead(model) / self._count

    def step_aside(self) -> None:
        with self._lock:
            self._active -= 1
            self._at_work -= 1
            if self._active < self._count and not self._closed:
                self._call_up()

    def step_back(self) -> None:
        # One too many may be at work until the first of them is done.
        with self._lock:
            self._active += 1
            self._at_work += 1

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            dropped: list[Future[Any]] = []
            while (waiting := self._turns.next()) is not None:
                dropped.append(waiting[1][1])
            for _ in range(self._made):
                self._tickets.put(None)
                self._bench.put(False)
        # Without the lock: whoever is told may ask something of this.
        for each in dropped:
            each.cancel()

    @property
    def has_company(self) -> bool:
        return self._at_work + self._turns.waiting > 1

    @property
    def _all_at_work(self) -> bool:
        """Whether a job would have to wait, and one thread more is allowed."""
        return self._active < 2 * self._count and self._at_work + self._turns.waiting >= self._active

    def _call_up(self) -> None:
        """One thread more that looks for jobs; to be called with the lock held."""
        self._active += 1
        if self._benched:
            self._benched -= 1
            self._bench.put(True)
            return
        self._made += 1
        # A daemon, because the interpreter waits for every other thread before it ends.
        thread = threading.Thread(target=self._work, name=f"{self._name}-{self._made}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no thread to give. Those that there are will do.
            self._active -= 1
            self._made -= 1
            if not self._made:
                raise

    def _work(self) -> None:
        _here.crew = self
        while self._is_wanted() and self._tickets.get() is not None:
            with self._lock:
                taken = self._turns.next()
                self._at_work += taken is not None
            if taken is None:
                continue
            model, (work, future) = taken
            # A turn is time at work: of a batch, that of the request that leads it.
            _here.elsewhere = 0.0
            began = time.perf_counter()
            work()
            spent = None if future.cancelled() else time.perf_counter() - began - _here.elsewhere
            # What the job held is not to be kept until the next one.
            del taken, work, future
            with self._lock:
                self._at_work -= 1
                self._turns.done(model, spent)

    def _is_wanted(self) -> bool:
        """Wait on the bench while there are more threads than may be at work; False when there is no more work."""
        if self._active <= self._count:
            return True
        with self._lock:
            if self._active <= self._count or self._turns.has_idle_model_waiting:
                return True
            self._active -= 1
            self._benched += 1
        return self._bench.get()
