"""Call a function for many values in several threads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

_AHEAD = 4
"""Calls for each thread that run, wait or have results, so that one slow call does not stop the other threads."""


def map_in_threads(work: Callable[[_T], _R], values: Iterable[_T], threads: int) -> Generator[_R]:
    """Yield what `work` returns for each value, in their order, and take values only as far ahead as needed.

    Raise what `work` raises, after the results before it. The end does not wait for calls that run.
    """
    jobs, stopping = SimpleQueue[tuple[Future[_R], _T] | None](), Event()

    def run() -> None:
        while (job := jobs.get()) is not None and not stopping.is_set():
            future, value = job
            try:
                future.set_result(work(value))
            except BaseException as error:  # noqa: BLE001  the main thread raises it
                future.set_exception(error)

    # Daemon threads, so that a hung model or server does not prevent the exit.
    pool = [Thread(target=run, daemon=True) for _ in range(threads)]
    pending: deque[Future[_R]] = deque()
    try:
        for thread in pool:
            thread.start()
        for value in values:
            pending.append(Future[_R]())
            jobs.put((pending[-1], value))
            if len(pending) >= _AHEAD * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        stopping.set()
        for _ in pool:
            jobs.put(None)
