"""The channels to one model process: free, in use, and abandoned by their request."""

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain

from app.engine.cancellation import raise_if_cancelled
from app.engine.scheduling.thread_pool import release_worker
from app.runtimes.subprocess.channel import Channel
from app.runtimes.subprocess.process import ModelProcess
from tasks.inference.error import ErrorKind, InferenceError

_POLL_SECONDS = 0.25
_MAX_WAITING_PER_CALL = 32
"""Requests that may wait for each permitted call, so that a slow model cannot fill the server's queue."""


class ChannelPool:
    """A pool of channels. Worker threads and the supervisor thread of the process use it.

    Args:
        process: the model process.
        max_calls: maximum number of concurrent calls. Streams do not count: a slow reader leaves its stream idle.
        seconds: timeout of a call outside any request, and of waiting for a channel.
    """

    def __init__(self, process: ModelProcess, max_calls: int, seconds: float) -> None:
        self.process = process
        self._max_calls = max_calls
        self._seconds = seconds
        self._changed = threading.Condition()
        # Keyed by niceness, because a thread without privileges cannot lower its niceness again.
        self._free: dict[int, list[Channel]] = {}
        self._calls = 0
        self._waiting = 0
        self._abandoned: dict[Channel, bool] = {}
        self._closed = False

    @property
    def abandoned(self) -> list[Channel]:
        """Return the channels of cancelled calls whose reply is outstanding."""
        return list(self._abandoned)

    @property
    def calls(self) -> int:
        """Return the number of calls in flight."""
        return self._calls

    @contextmanager
    def for_call(self) -> Generator[Channel]:
        """Acquire a channel for one call.

        Raises:
            InferenceError: OVERLOADED if too many requests wait; CANCELLED or DEADLINE_EXCEEDED if the request ends.
            OSError: if the process has ended.
        """
        self._begin_call()
        try:
            channel = self.acquire()
        except BaseException:
            self._end_call()
            raise
        try:
            yield channel
        finally:
            self.release(channel, call=True)

    def acquire(self) -> Channel:
        """Acquire a channel until `release`.

        Raises:
            OSError: if the process has ended.
        """
        niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        with self._changed:
            if self._closed:
                raise ConnectionResetError
            if free := self._free.get(niceness):
                return free.pop()
        return Channel(self.process.open_channel(), self._seconds, niceness)

    def release(self, channel: Channel, *, call: bool = False) -> bool:
        """Release a channel. If its reply is outstanding, cancel the call.

        Returns:
            Whether the supervisor must wait for the reply.
        """
        with self._changed:
            if channel.awaiting_reply and not self._closed:
                channel.cancel()
                self._abandoned[channel] = call
                return True
            free = self._free.setdefault(channel.niceness, [])
            if self._closed or len(free) >= self._max_calls:
                channel.close()
            else:
                free.append(channel)
        if call:
            self._end_call()
        return False

    def close_abandoned(self, channel: Channel) -> None:
        """Close an abandoned channel after its reply arrived or the process ended."""
        with self._changed:
            call = self._abandoned.pop(channel, False)
            channel.close()
        if call:
            self._end_call()

    def close(self) -> None:
        """Close all channels after the process has ended, and wake all waiting requests."""
        with self._changed:
            self._closed = True
            for channel in (*chain.from_iterable(self._free.values()), *self._abandoned):
                channel.close()
            self._free.clear()
            self._abandoned.clear()
            self._changed.notify_all()

    def _begin_call(self) -> None:
        with self._changed:
            if self._calls >= self._max_calls:
                if self._waiting >= self._max_calls * _MAX_WAITING_PER_CALL:
                    message = f"{self._waiting} requests already wait for the model; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message)
                self._wait_for_slot()
            if self._closed:
                raise ConnectionResetError
            self._calls += 1

    def _wait_for_slot(self) -> None:
        self._waiting += 1
        deadline = time.monotonic() + self._seconds
        try:
            # Keep the worker briefly: a released worker would decode images that the model cannot process soon.
            self._changed.wait_for(self._can_begin, _POLL_SECONDS)
            while not self._can_begin():
                self._check_cancelled(deadline)
                with release_worker():
                    self._changed.wait_for(self._can_begin, _POLL_SECONDS)
        finally:
            self._waiting -= 1

    def _check_cancelled(self, deadline: float) -> None:
        try:
            raise_if_cancelled()
            if time.monotonic() >= deadline:
                message = f"The model was busy for {self._seconds:g} s; try again later"
                raise InferenceError(ErrorKind.OVERLOADED, message)
        except InferenceError:
            # Pass on a notification that this waiter may have consumed.
            self._changed.notify()
            raise

    def _can_begin(self) -> bool:
        return self._closed or self._calls < self._max_calls

    def _end_call(self) -> None:
        with self._changed:
            self._calls -= 1
            self._changed.notify()
