"""Run functions in a thread pool of the engine, and block them."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from app.core.engine.scheduling.thread_pool import ThreadPool, release_worker

T = TypeVar("T")


class FutureJob(Generic[T]):
    """A function whose outcome is a future."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._function = function

    def run(self) -> bool:
        """Set the outcome of the future, unless it is cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return False
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001  `future.result` raises it
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
        return True

    def drop(self) -> None:
        self.future.cancel()


def submit_for(pool: ThreadPool, model: str, function: Callable[[], T]) -> Future[T]:
    """Submit a function as a job of `model`, which is removed from the queue when its future is cancelled."""
    job = FutureJob(function)
    job_id = pool.add(model, job)
    job.future.add_done_callback(lambda future: pool.remove(model, job_id) if future.cancelled() else None)
    return job.future


class Gate:
    """Jobs that signal their start and wait until `open` is set."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.started = threading.Semaphore(0)

    def block(self, _: object = None) -> str:
        self.started.release()
        assert self.open.wait(60)
        return threading.current_thread().name

    def block_elsewhere(self) -> str:
        with release_worker():
            return self.block()

    def wait_started(self, count: int) -> None:
        for _ in range(count):
            assert self.started.acquire(timeout=60)
