"""The threads that answer requests: so many at work at once, however many more wait for something else."""

import queue
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

__all__ = ("Workers", "waiting_elsewhere")

P = ParamSpec("P")
T = TypeVar("T")

_Work = Callable[[], None]

_here = threading.local()


class Workers:
    """Runs jobs in the order in which they come.

    Args:
        count: so many threads are at work at once. One that is `waiting_elsewhere` is not at work.
        name: what the threads' names begin with.
    """

    def __init__(self, count: int, name: str) -> None:
        self._crew = _Crew(count, name)
        # The threads hold the crew alone, so that workers nobody uses any more are sent home.
        weakref.finalize(self, self._crew.close)

    def submit(self, job: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Have `job` run by one of the threads.

        Raises:
            RuntimeError: when the workers take no more jobs.
        """
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = job(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  it belongs to whoever waits for the job
                future.set_exception(error)
            else:
                future.set_result(result)

        self._crew.add(work, future)
        return future

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
    try:
        yield
    finally:
        crew.step_back()


class _Crew:
    """The threads, and the jobs that wait for them."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[_Work, Future[Any]] | None] = queue.SimpleQueue()
        self._bench: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._made = 0
        # Those that look for jobs or are at one: neither waiting elsewhere nor on the bench.
        self._active = 0
        self._benched = 0
        self._closed = False

    def add(self, work: _Work, future: Future[Any]) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("The workers take no more jobs")
            if self._active < self._count:
                self._call_up()
            self._jobs.put((work, future))

    def step_aside(self) -> None:
        with self._lock:
            self._active -= 1
            if self._active < self._count and not self._closed:
                self._call_up()

    def step_back(self) -> None:
        # One too many may be at work until the first of them is done.
        with self._lock:
            self._active += 1

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with suppress(queue.Empty):
                while (waiting := self._jobs.get_nowait()) is not None:
                    waiting[1].cancel()
            for _ in range(self._made):
                self._jobs.put(None)
                self._bench.put(False)

    def _call_up(self) -> None:
        """One thread more that looks for jobs; to be called with the lock held."""
        self._active += 1
        if self._benched:
            self._benched -= 1
            self._bench.put(True)
            return
        self._made += 1
        # A daemon, because the interpreter waits for every other thread before it ends.
        threading.Thread(target=self._work, name=f"{self._name}-{self._made}", daemon=True).start()

    def _work(self) -> None:
        _here.crew = self
        while self._is_wanted() and (taken := self._jobs.get()) is not None:
            taken[0]()
            # What the job held is not to be kept until the next one.
            del taken

    def _is_wanted(self) -> bool:
        """Wait on the bench while there are more threads than may be at work; False when there is no more work."""
        if self._active <= self._count:
            return True
        with self._lock:
            if self._active <= self._count:
                return True
            self._active -= 1
            self._benched += 1
        return self._bench.get()
