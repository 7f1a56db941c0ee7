"""The channels to one model process: free, in use, and abandoned by their request."""

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain

from app.engine.interest import check_interest
from app.engine.workers import waiting_elsewhere
from app.runtimes.isolated.line import Line
from app.runtimes.isolated.process import ModelProcess
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Lines",)

_POLL_SECONDS = 0.25
_MAX_WAITING_PER_CALL = 32
"""Requests that may wait for each permitted call, so that a slow model cannot fill the server's queue."""


class Lines:
    """A pool of channels. Worker threads and the supervisor thread of the process use it.

    Args:
        process: the model process.
        most: maximum number of concurrent calls. Streams do not count: a slow reader leaves its stream idle.
        seconds: timeout of a call outside any request, and of waiting for a channel.
    """

    def __init__(self, process: ModelProcess, most: int, seconds: float) -> None:
        self.process = process
        self._max_calls = most
        self._seconds = seconds
        self._changed = threading.Condition()
        # Keyed by niceness, because a thread without privileges cannot lower its niceness again.
        self._free: dict[int, list[Line]] = {}
        self._calls = 0
        self._waiting = 0
        self._left: dict[Line, bool] = {}
        self._closed = False

    @property
    def left(self) -> list[Line]:
        """Return the channels of cancelled calls whose reply is outstanding."""
        return list(self._left)

    @property
    def calls(self) -> int:
        """Return the number of calls in flight."""
        return self._calls

    @contextmanager
    def for_call(self) -> Generator[Line]:
        """Acquire a channel for one call.

        Raises:
            InferenceError: OVERLOADED if too many requests wait; CANCELLED or DEADLINE_EXCEEDED if the request ends.
            OSError: if the process has ended.
        """
        self._begin_call()
        try:
            line = self.take()
        except BaseException:
            self._end_call()
            raise
        try:
            yield line
        finally:
            self.give_back(line, call=True)

    def take(self) -> Line:
        """Acquire a channel until `give_back`.

        Raises:
            OSError: if the process has ended.
        """
        niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        with self._changed:
            if self._closed:
                raise ConnectionResetError
            if free := self._free.get(niceness):
                return free.pop()
        return Line(self.process.open_line(), self._seconds, niceness)

    def give_back(self, line: Line, *, call: bool = False) -> bool:
        """Release a channel. If its reply is outstanding, cancel the call.

        Returns:
            Whether the supervisor must wait for the reply.
        """
        with self._changed:
            if line.open_question and not self._closed:
                line.hang_up()
                self._left[line] = call
                return True
            free = self._free.setdefault(line.niceness, [])
            if self._closed or len(free) >= self._max_calls:
                line.close()
            else:
                free.append(line)
        if call:
            self._end_call()
        return False

    def answered(self, line: Line) -> None:
        """Close an abandoned channel after its reply arrived or the process ended."""
        with self._changed:
            call = self._left.pop(line, False)
            line.close()
        if call:
            self._end_call()

    def close(self) -> None:
        """Close all channels after the process has ended, and wake all waiting requests."""
        with self._changed:
            self._closed = True
            for line in (*chain.from_iterable(self._free.values()), *self._left):
                line.close()
            self._free.clear()
            self._left.clear()
            self._changed.notify_all()

    def _begin_call(self) -> None:
        with self._changed:
            if self._calls >= self._max_calls:
                if self._waiting >= self._max_calls * _MAX_WAITING_PER_CALL:
                    message = f"{self._waiting} requests already wait for the model; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message)
                self._wait_for_end_of_call()
            if self._closed:
                raise ConnectionResetError
            self._calls += 1

    def _wait_for_end_of_call(self) -> None:
        self._waiting += 1
        until = time.monotonic() + self._seconds
        try:
            # Keep the worker briefly: a released worker would decode images that the model cannot process soon.
            self._changed.wait_for(self._is_open, _POLL_SECONDS)
            while not self._is_open():
                self._check_interest(until)
                with waiting_elsewhere():
                    self._changed.wait_for(self._is_open, _POLL_SECONDS)
        finally:
            self._waiting -= 1

    def _check_interest(self, until: float) -> None:
        try:
            check_interest()
            if time.monotonic() >= until:
                message = f"The model was busy for {self._seconds:g} s; try again later"
                raise InferenceError(ErrorKind.OVERLOADED, message)
        except InferenceError:
            # Pass on a notification that this waiter may have consumed.
            self._changed.notify()
            raise

    def _is_open(self) -> bool:
        return self._closed or self._calls < self._max_calls

    def _end_call(self) -> None:
        with self._changed:
            self._calls -= 1
            self._changed.notify()
