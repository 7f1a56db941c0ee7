"""The lines into one process: which are free, which are in use, and which nobody waits at any more."""

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

_GLANCE_SECONDS = 0.25
_WAITING_FOR_EACH = 32
"""So many requests may wait for each line: a model that is slow is not to fill the server's own waiting room."""


class Lines:
    """Used by workers, and by the thread that looks after the process.

    Args:
        process: at the other end of all lines.
        most: so many calls may be made at once. Streams are not counted: one whose reader is slow does nothing.
        seconds: a call for which nobody in particular waits may take so long.
    """

    def __init__(self, process: ModelProcess, most: int, seconds: float) -> None:
        self.process = process
        self._most = most
        self._seconds = seconds
        self._changed = threading.Condition()
        # By the niceness of whoever uses them: what became nice cannot be made less so.
        self._free: dict[int, list[Line]] = {}
        self._calls = 0
        self._waiting = 0
        self._left: dict[Line, bool] = {}
        self._closed = False

    @property
    def left(self) -> list[Line]:
        """Those with a question nobody waits for any more, and to which there was no reply yet."""
        return list(self._left)

    @property
    def calls(self) -> int:
        """So many calls are being made."""
        return self._calls

    @contextmanager
    def for_call(self) -> Generator[Line]:
        """A line for one question.

        Raises:
            InferenceError: OVERLOADED when too many wait for one, or why nobody waits any more.
            OSError: when the process has ended.
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
        """A line for as long as it takes; to be given back.

        Raises:
            OSError: when the process has ended.
        """
        niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        with self._changed:
            if self._closed:
                raise ConnectionResetError
            if free := self._free.get(niceness):
                return free.pop()
        return Line(self.process.open_line(), self._seconds, niceness)

    def give_back(self, line: Line, *, call: bool = False) -> bool:
        """Be done with a line, whose question may be open.

        Returns:
            Whether somebody has to look for the reply.
        """
        with self._changed:
            if line.open_question and not self._closed:
                line.hang_up()
                self._left[line] = call
                return True
            free = self._free.setdefault(line.niceness, [])
            if self._closed or len(free) >= self._most:
                line.close()
            else:
                free.append(line)
        if call:
            self._end_call()
        return False

    def answered(self, line: Line) -> None:
        """There is a reply on a line that was left, or none can come."""
        with self._changed:
            call = self._left.pop(line, False)
            line.close()
        if call:
            self._end_call()

    def close(self) -> None:
        """The process has ended: whoever waits is told so."""
        with self._changed:
            self._closed = True
            for each in (*chain.from_iterable(self._free.values()), *self._left):
                each.close()
            self._free.clear()
            self._left.clear()
            self._changed.notify_all()

    def _begin_call(self) -> None:
        with self._changed:
            if self._calls >= self._most:
                if self._waiting >= self._most * _WAITING_FOR_EACH:
                    message = f"{self._waiting} requests wait for the model, and it takes no more; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message)
                self._wait_for_end_of_call()
            if self._closed:
                raise ConnectionResetError
            self._calls += 1

    def _wait_for_end_of_call(self) -> None:
        self._waiting += 1
        until = time.monotonic() + self._seconds
        try:
            # A worker's place is kept for a moment, so that no more pictures are decoded than will soon be looked at.
            self._changed.wait_for(self._is_open, _GLANCE_SECONDS)
            while not self._is_open():
                self._check_interest(until)
                with waiting_elsewhere():
                    self._changed.wait_for(self._is_open, _GLANCE_SECONDS)
        finally:
            self._waiting -= 1

    def _check_interest(self, until: float) -> None:
        try:
            check_interest()
            if time.monotonic() >= until:
                message = f"The model was at other calls for {self._seconds:g} s; try again later"
                raise InferenceError(ErrorKind.OVERLOADED, message)
        except InferenceError:
            # Whoever else waits was not told of the call that has ended.
            self._changed.notify()
            raise

    def _is_open(self) -> bool:
        return self._closed or self._calls < self._most

    def _end_call(self) -> None:
        with self._changed:
            self._calls -= 1
            self._changed.notify()
