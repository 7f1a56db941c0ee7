"""The server's ends of the channels to a model process: free, in use, and abandoned by their request."""

import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.engine.cancellation import current_token, raise_if_cancelled
from app.core.engine.scheduling.thread_pool import release_worker
from app.core.runtimes.waiting import WaitingRequests
from app.plugins.isolation.messages import Call, CallKind, allocate, pickle_inputs, receive, send
from app.plugins.isolation.process import SOCKET_TIMEOUT_SECONDS, ModelProcess
from app.plugins.isolation.remote import Failure
from tasks.inference.error import ErrorKind, InferenceError

_RELEASE_WORKER_SECONDS = 0.5
"""A call that takes longer releases its worker, because it may hang."""

_POLL_SECONDS = 0.2
"""Interval between checks for cancellation."""


class Channel:
    """An open channel, which carries one call at a time, and its outcome. One thread at a time uses it.

    Args:
        seconds: timeout of a call outside any request, such as a warm-up.

    Attributes:
        niceness: niceness of the threads that use this channel.
        counted: whether its call counts towards the maximum of the pool.
        called_at: `time.monotonic` when the last call was sent.
        awaiting_reply: whether the outcome of the last call is outstanding.
    """

    def __init__(self, server_socket: socket.socket, seconds: float, niceness: int) -> None:
        server_socket.settimeout(SOCKET_TIMEOUT_SECONDS)
        self._socket = server_socket
        self._seconds = seconds
        self._memory: NDArray[np.uint8] | None = None
        self.niceness = niceness
        self.counted = False
        self.called_at = 0.0
        self.awaiting_reply = False

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the outcome arrives or the process ends."""
        return self._socket.fileno()

    def call(self, kind: CallKind, inputs: Any = None) -> Any:
        """Send a call and return its outcome.

        Raise InferenceError if the model fails, the request is cancelled, or there is no memory for the inputs. Raise
        EOFError if the process has ended. Raise OSError if the process has ended or does not respond.
        """
        body, arrays, spans = pickle_inputs(inputs)
        descriptor = self._write(arrays, spans) if arrays else None
        self.called_at, self.awaiting_reply = time.monotonic(), True
        try:
            send(self._socket, Call(kind, body, spans, self.niceness), descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        self._wait()
        (outcome, memory_is_reusable), _ = receive(self._socket)
        self.awaiting_reply = False
        if not memory_is_reusable:
            self._memory = None
        if isinstance(outcome, Failure):
            raise outcome.to_error()
        return outcome

    def cancel(self) -> None:
        """Cancel the call. `fileno` becomes readable when the process has finished it."""
        # The socket may be closed already.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket and release the shared memory."""
        self._memory = None
        self._socket.close()

    def _write(self, arrays: Sequence[memoryview], spans: Sequence[tuple[int, int]]) -> int | None:
        """Copy arrays to shared memory. Return the descriptor of new memory, which replaces the old in the process."""
        descriptor, size = None, sum(spans[-1])
        if self._memory is None or len(self._memory) < size:
            descriptor, self._memory = allocate(size)
        for array, (offset, length) in zip(arrays, spans, strict=True):
            self._memory[offset : offset + length] = np.frombuffer(array, np.uint8)
        return descriptor

    def _wait(self) -> None:
        if wait([self._socket], _RELEASE_WORKER_SECONDS):
            return
        with release_worker():
            while True:
                raise_if_cancelled()
                if current_token() is None and time.monotonic() - self.called_at >= self._seconds:
                    message = f"The model did not answer within {self._seconds:g} s"
                    raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message)
                if wait([self._socket], _POLL_SECONDS):
                    return


class ChannelPool:
    """A pool of channels. Worker threads and the supervisor thread of the process use it.

    Args:
        max_calls: maximum number of concurrent calls. Streams do not count: a slow reader leaves its stream idle.
        seconds: timeout of a call outside any request, and of waiting for a channel.
        on_abandoned: called after a channel is added to `abandoned`.

    Attributes:
        calls: number of calls in flight.
        abandoned: channels of cancelled calls whose outcome is outstanding.
    """

    def __init__(self, process: ModelProcess, max_calls: int, seconds: float, on_abandoned: Callable[[], None]) -> None:
        self.process = process
        self.calls = 0
        self.abandoned: set[Channel] = set()
        self._max_calls = max_calls
        self._seconds = seconds
        self._on_abandoned = on_abandoned
        self._waiting = WaitingRequests(max_calls, seconds)
        # Keyed by niceness, because a thread without privileges cannot lower its niceness again.
        self._free: dict[int, list[Channel]] = {}
        self._closed = False

    @contextmanager
    def lease(self, *, counted: bool = True) -> Generator[Channel]:
        """Acquire a channel for one call, or for a stream, which is not counted.

        If the outcome of its call is outstanding at the end, the call is cancelled. Raise OVERLOADED if too many
        requests wait; CANCELLED or DEADLINE_EXCEEDED if the request ends. Raise OSError if the process has ended.
        """
        channel = self._acquire(counted=counted)
        try:
            yield channel
        finally:
            self._release(channel)

    def close_abandoned(self, channel: Channel) -> None:
        """Close an abandoned channel after its outcome arrived."""
        with self._waiting.changed:
            self.abandoned.discard(channel)
            channel.close()
            self._end_call(channel)

    def close(self) -> None:
        """Close all channels after the process has ended, and wake all waiting requests."""
        with self._waiting.changed:
            self._closed = True
            for channel in (*chain.from_iterable(self._free.values()), *self.abandoned):
                channel.close()
            self._free.clear()
            self.abandoned.clear()
            self._waiting.changed.notify_all()

    def _acquire(self, *, counted: bool) -> Channel:
        niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        with self._waiting.changed:
            if counted:
                self._waiting.wait(lambda: self._closed or self.calls < self._max_calls, keeps_worker=True)
            if self._closed:
                raise ConnectionResetError
            free = self._free.get(niceness)
            channel = free.pop() if free else Channel(self.process.open_channel(), self._seconds, niceness)
            channel.counted = counted
            self.calls += counted
        return channel

    def _release(self, channel: Channel) -> None:
        with self._waiting.changed:
            if channel.awaiting_reply and not self._closed:
                channel.cancel()
                self.abandoned.add(channel)
                self._on_abandoned()
                return
            free = self._free.setdefault(channel.niceness, [])
            if self._closed or len(free) >= self._max_calls:
                channel.close()
            else:
                free.append(channel)
            self._end_call(channel)

    def _end_call(self, channel: Channel) -> None:
        self.calls -= channel.counted
        self._waiting.changed.notify()
