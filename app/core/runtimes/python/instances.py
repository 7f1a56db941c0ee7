"""Run the instances of a model's class, each in its own thread, so that a hung call blocks no other model.

A thread cannot be stopped from outside. A call that times out is therefore abandoned: its client receives an error, and
its instance takes no further calls until the call returns.
"""

import asyncio
import inspect
import math
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from app.core.engine.error_text import error_text
from app.core.engine.scheduling.thread_pool import release_worker
from app.core.runtimes.waiting import WaitingRequests
from tasks.inference.error import ErrorKind, InferenceError, model_failed, truncate

T = TypeVar("T")

_MAX_ERROR_LENGTH = 400
_CANCEL_SECONDS = 1.0

_CLOSE_SECONDS = 30.0
"""Timeout of a `close` that is a coroutine."""


def describe_exception(error: BaseException) -> str:
    """Return the type and the shortened text of an exception that model code raised."""
    shown, name = truncate(error_text(error).encode(errors="replace").decode(), _MAX_ERROR_LENGTH), type(error).__name__
    return shown if isinstance(error, ModelExited) or shown == name else f"{name}: {shown}"


class JobTimeoutError(Exception):
    """A job timed out. It may still be running."""


class ModelExited(Exception):  # noqa: N818  it wraps exceptions that are not errors
    """Replaces an exception such as `SystemExit`, which must not stop the thread or the server, by its description."""


class ModelInstance:
    """One object of the model's class, and its thread, which runs one job at a time.

    Attributes:
        target: the object, once it is constructed.
        thread: the thread that runs its jobs.
        due: `time.monotonic` at which the current job times out; infinite while idle.
    """

    def __init__(self, name: str) -> None:
        self.target: Any = None
        self.due = math.inf
        self._last: Future[Any] | None = None
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], float, Future[Any]] | None] = queue.SimpleQueue()
        # A daemon, because the interpreter waits for all other threads before it ends.
        self.thread = threading.Thread(target=self._run_jobs, name=name, daemon=True)
        self.thread.start()

    def run(self, job: Callable[[], T], seconds: float) -> T:
        """Run `job` in this instance's thread and return its result. An awaitable result is awaited there.

        After `seconds`, a coroutine is cancelled. Raise JobTimeoutError if the job times out. Raise ModelExited if the
        job raises an exception such as `SystemExit`. Raise Exception if any other exception of the job.
        """
        self._last = future = Future[Any]()
        self.due = time.monotonic() + seconds
        self._jobs.put((job, seconds, future))
        try:
            with release_worker():
                error = future.exception(seconds)
        except TimeoutError:
            raise JobTimeoutError from None
        if error is not None:
            raise error
        return future.result()

    def call_when_idle(self, function: Callable[[], object]) -> None:
        """Call `function` when the last job of `run` has ended: now, or after a job that timed out."""
        last, self._last = self._last, None
        if last is None:
            function()
        else:
            last.add_done_callback(lambda _: function())

    def stop(self, final_job: Callable[[Any], object]) -> None:
        """Stop the thread after the current job, and call `final_job` with the object, if it exists, before that."""
        if self.target is not None:
            self._jobs.put((lambda: final_job(self.target), _CLOSE_SECONDS, Future()))
        self._jobs.put(None)

    def _run_jobs(self) -> None:
        with asyncio.Runner() as runner:
            while self._run_next(runner):
                pass

    def _run_next(self, runner: asyncio.Runner) -> bool:
        """Run the next job. Its own frame releases all references before the thread waits again."""
        entry = self._jobs.get()
        if entry is None:
            return False
        job, seconds, future = entry
        result, failure = None, None
        try:
            result = job()
            if inspect.isawaitable(result):
                result = runner.run(_with_timeout(result, seconds))
        except Exception as error:  # noqa: BLE001  `run` raises it in the calling thread
            failure = error
        except BaseException as error:  # noqa: BLE001
            failure = ModelExited(describe_exception(error)).with_traceback(error.__traceback__)
        self.due = math.inf
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
        # Break the reference cycle between this frame and the traceback.
        failure = None
        return True


async def _with_timeout(value: Awaitable[T], seconds: float) -> T:
    """Await `value`, and cancel it after `seconds`."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await value
    except TimeoutError:
        if limit.expired():
            raise JobTimeoutError from None
        raise


class InstanceLease(msgspec.Struct, eq=False):
    """Exclusive use of an instance. `timed_out` says whether a job timed out, so that another job would wait for it."""

    _instance: ModelInstance
    _seconds: float
    timed_out: bool = False

    def run(self, job: Callable[[Any], T]) -> T:
        """Run `job` with the object in the instance's thread, and return its result.

        Raise DEADLINE_EXCEEDED if the job times out; MODEL_FAILED if it raises. An `InferenceError` of the job itself
        is passed on.
        """
        try:
            return self._instance.run(lambda: job(self._instance.target), self._seconds)
        except InferenceError:
            raise
        except JobTimeoutError:
            self.timed_out = True
            message = f"The model did not answer within {self._seconds:g} s"
            raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message) from None
        except Exception as error:
            raise model_failed(f"The model failed: {describe_exception(error)}") from error


class InstancePool:
    """A pool of the instances of a model. A call acquires an idle instance, or waits for one.

    Args:
        seconds: timeout of a call, and of waiting for an instance.
        close: called with each object in its thread before the thread ends.
    """

    def __init__(self, instances: Sequence[ModelInstance], seconds: float, close: Callable[[Any], object]) -> None:
        self._instances = tuple(instances)
        self._close = close
        self._free = list(instances)
        self._seconds = seconds
        self._waiting = WaitingRequests(len(instances), seconds)
        self._closed = False
        self._hung_message = f"The model has not returned from a call of more than {seconds:g} s"

    @contextmanager
    def lease(self) -> Generator[InstanceLease]:
        """Acquire an instance for exclusive use.

        Raise MODEL_NOT_READY while all instances hang; OVERLOADED if no instance becomes idle in time.
        """
        instance = self._acquire()
        try:
            yield InstanceLease(instance, self._seconds)
        finally:
            instance.call_when_idle(lambda: self._release(instance))

    @property
    def unavailable_reason(self) -> str:
        """Return why calls are rejected: all instances hang. Return an empty string otherwise."""
        # A coroutine takes a moment to react to its cancellation.
        if self._free or self._latest_due() + _CANCEL_SECONDS > time.monotonic():
            return ""
        return self._hung_message

    def close(self) -> None:
        """Reject new calls. Each thread finishes its call, closes its object and ends."""
        with self._waiting.changed:
            if self._closed:
                return
            self._closed = True
            self._waiting.changed.notify_all()
        for instance in self._instances:
            instance.stop(self._close)

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` in total for all threads to end."""
        deadline = time.monotonic() + seconds
        for instance in self._instances:
            instance.thread.join(max(0.0, deadline - time.monotonic()))

    def _acquire(self) -> ModelInstance:
        with self._waiting.changed:
            self._waiting.wait(self._is_ready)
            if self._closed:
                raise InferenceError(ErrorKind.MODEL_NOT_READY, "The model was unloaded")
            return self._free.pop()

    def _is_ready(self) -> bool:
        if self._closed or self._free:
            return True
        if self._latest_due() <= time.monotonic():
            raise InferenceError(ErrorKind.MODEL_NOT_READY, self._hung_message)
        return False

    def _latest_due(self) -> float:
        """Return the latest time at which a job times out. It is in the past if all instances hang."""
        return max(instance.due for instance in self._instances)

    def _release(self, instance: ModelInstance) -> None:
        with self._waiting.changed:
            self._free.append(instance)
            self._waiting.changed.notify()
