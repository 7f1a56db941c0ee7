"""The objects of a model's class, each in a thread of its own, so that one that never returns holds up no other model.

A thread cannot be stopped from outside. A call that takes too long is therefore given up, not ended: its sender is
told, and its object takes no further calls until it has returned after all.
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

from app.engine.interest import check_interest
from app.engine.workers import waiting_elsewhere
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Gone", "Instance", "Instances", "LateError", "Lease", "told")

T = TypeVar("T")

_LONGEST_TEXT = 400
_SECONDS_BETWEEN_LOOKS = 0.25
"""Whether the sender of a request that waits is still there."""
_WAITING_FOR_EACH = 32
"""So many requests may wait for each object: a model that is slow is not to fill the server's own waiting room."""

_SECONDS_TO_CANCEL = 1.0

_SECONDS_TO_CLOSE = 30.0
"""A `close` that is a coroutine is cancelled then."""


def told(error: BaseException) -> str:
    """An exception of a model's own code in one line, whatever its text is."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  a `__str__` of the model's own may fail as well
        text = "(its text cannot be read)"
    text = text.encode(errors="replace").decode()
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


class LateError(Exception):
    """A job did not end in time. It may still be running."""


class Gone(Exception):  # noqa: N818  it stands for what ended a thread's job, error or not
    """What a job raised that is no error but an order to stop, such as `SystemExit`: obeyed by nobody here."""


class Instance:
    """One object and its thread, which runs one job after the other.

    Args:
        name: of the thread.

    Attributes:
        target: the object, once it is made.
        thread: where it lives.
        due: when the job in hand should have ended, by `time.monotonic`; infinite while there is none.
    """

    def __init__(self, name: str) -> None:
        self.target: Any = None
        self.due = math.inf
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], float, Future[Any]] | None] = queue.SimpleQueue()
        # A daemon, because the interpreter waits for every other thread before it ends.
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def run(self, job: Callable[[], T], seconds: float, done: Callable[[], None] | None = None) -> T:
        """The result of `job`, run in this object's thread. Where that is awaitable, it is awaited there.

        Args:
            job: what to run.
            seconds: so long is waited for it. A coroutine is cancelled then.
            done: called when the job has ended, however late.

        Raises:
            LateError: when it takes longer.
            Gone: when it tried to stop the interpreter or its thread.
            Exception: whatever else it raises.
        """
        future: Future[Any] = Future()
        if done is not None:
            future.add_done_callback(lambda _: done())
        self.due = time.monotonic() + seconds
        self._jobs.put((job, seconds, future))
        try:
            with waiting_elsewhere():
                error = future.exception(seconds)
        except TimeoutError:
            raise LateError from None
        if error is not None:
            raise error
        return future.result()

    def end(self, last: Callable[[Any], object]) -> None:
        """Let the thread end behind the job that it is at and a last one, which is given the object if there is one."""
        if self.target is not None:
            self._jobs.put((lambda: last(self.target), _SECONDS_TO_CLOSE, Future()))
        self._jobs.put(None)

    def _work(self) -> None:
        with asyncio.Runner() as runner:
            while self._work_at_one(runner):
                pass

    def _work_at_one(self, runner: asyncio.Runner) -> bool:
        """Do the next job, in a frame of its own, so that nothing of it is held until the one after it."""
        work = self._jobs.get()
        if work is None:
            return False
        job, seconds, future = work
        result, failure = None, None
        try:
            result = job()
            if inspect.isawaitable(result):
                result = runner.run(_awaited(result, seconds))
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to whoever waits for the job
            failure = error
        except BaseException as error:  # noqa: BLE001
            failure = Gone(told(error))
            failure.__cause__ = error
        self.due = math.inf
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
        # It refers to this frame by its traceback; the frame must not refer to it as well.
        failure = None
        return True


async def _awaited(value: Awaitable[T], seconds: float) -> T:
    """`value`, cancelled after so many seconds."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await value
    except TimeoutError:
        if limit.expired():
            raise LateError from None
        raise


class Lease:
    """An object of a model, for one caller alone.

    Args:
        instance: the object.
        seconds: a job with it may take so long.

    Attributes:
        late: whether a job did not end in time, so that another would wait behind it.
    """

    def __init__(self, instance: Instance, seconds: float) -> None:
        self._instance = instance
        self.late = False
        self._seconds = seconds
        self._lock = threading.Lock()
        self._running = False
        self._given_back: Callable[[], None] | None = None

    def run(self, job: Callable[[Any], T]) -> T:
        """The result of `job`, which is given the object, in the object's thread.

        Raises:
            InferenceError: DEADLINE_EXCEEDED when it takes too long, MODEL_FAILED for whatever it raises, but an
                `InferenceError` of its own.
        """
        self._running = True
        try:
            return self._instance.run(lambda: job(self._instance.target), self._seconds, self._ended)
        except InferenceError:
            raise
        except LateError:
            self.late = True
            message = f"The model did not answer within {self._seconds:g} s"
            raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message) from None
        except Gone as error:
            raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: {error}") from error
        except Exception as error:
            message = f"The model failed: {told(error)}"
            raise InferenceError(ErrorKind.MODEL_FAILED, message) from error

    def end(self, give_back: Callable[[], None]) -> None:
        """Give the object back, now or when its job has ended."""
        with self._lock:
            if self._running:
                self._given_back = give_back
                return
        give_back()

    def _ended(self) -> None:
        with self._lock:
            self._running = False
            give_back, self._given_back = self._given_back, None
        if give_back is not None:
            give_back()


class Instances:
    """The objects of a model. A call takes one that is free, or waits for one.

    Args:
        instances: at least one.
        seconds: a call may take so long, and wait so long.
        close: called with each object at its end, in its thread.
    """

    def __init__(self, instances: Sequence[Instance], seconds: float, close: Callable[[Any], object]) -> None:
        self._all = tuple(instances)
        self._close = close
        self._free = list(instances)
        self._seconds = seconds
        self._changed = threading.Condition()
        self._closed = False
        self._waiting = 0
        self._stuck = f"The model has not returned from a call of more than {seconds:g} s"

    @contextmanager
    def lease(self) -> Generator[Lease]:
        """An object for one caller alone.

        Raises:
            InferenceError: MODEL_NOT_READY while no object returns from its call, OVERLOADED when none gets free.
        """
        instance = self._take()
        lease = Lease(instance, self._seconds)
        try:
            yield lease
        finally:
            lease.end(lambda: self._give_back(instance))

    @property
    def trouble(self) -> str:
        """Why a call would be refused: no object has returned in time; empty while one has, or still may."""
        # One that is being cancelled is late for a moment.
        if self._free or self._hope() + _SECONDS_TO_CANCEL > time.monotonic():
            return ""
        return self._stuck

    def close(self) -> None:
        """Take no more calls, and let every thread end behind the call that it is at, closing its object first."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        for each in self._all:
            each.end(self._close)

    def join(self, seconds: float) -> None:
        """Wait for every thread to end, all in all for so many seconds."""
        until = time.monotonic() + seconds
        for each in self._all:
            each.thread.join(max(0.0, until - time.monotonic()))

    def _take(self) -> Instance:
        until = time.monotonic() + self._seconds
        with self._changed:
            while True:
                if self._closed:
                    raise InferenceError(ErrorKind.MODEL_NOT_READY, "The model was unloaded")
                self._check_interest()
                if self._free:
                    return self._free.pop()
                now = time.monotonic()
                hope = self._hope()
                if hope <= now:
                    raise InferenceError(ErrorKind.MODEL_NOT_READY, self._stuck)
                if until <= now:
                    message = f"The model was at other calls for {self._seconds:g} s; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message)
                if self._waiting >= len(self._all) * _WAITING_FOR_EACH:
                    message = f"{self._waiting} requests wait for the model, and it takes no more; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message)
                self._wait(min(until - now, hope - now, _SECONDS_BETWEEN_LOOKS))

    def _hope(self) -> float:
        """When the last object that is not late should have returned; a time that is past where all are late."""
        return max(each.due for each in self._all)

    def _check_interest(self) -> None:
        try:
            check_interest()
        except InferenceError:
            # Whoever else waits was not told of the object that is left.
            self._changed.notify()
            raise

    def _wait(self, seconds: float) -> None:
        self._waiting += 1
        try:
            with waiting_elsewhere():
                self._changed.wait(seconds)
        finally:
            self._waiting -= 1

    def _give_back(self, instance: Instance) -> None:
        with self._changed:
            self._free.append(instance)
            self._changed.notify()
