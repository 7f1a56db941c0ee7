"""The server's ends of the channels to a model process: free, in use, and abandoned by their request."""

import os
import select
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from app.engine.cancellation import current_token, raise_if_cancelled
from app.engine.scheduling.thread_pool import release_worker
from app.runtimes.subprocess.memory import SharedMemory, pickle_out_of_band
from app.runtimes.subprocess.messages import Call, CallKind, Reply, receive, send
from app.runtimes.subprocess.process import ModelProcess
from app.runtimes.waiting import WaitingRequests
from tasks.inference.error import ErrorKind, InferenceError

_RELEASE_WORKER_SECONDS = 0.5
"""A call that takes longer releases its worker, because it may hang."""

_POLL_SECONDS = 0.2
"""Interval between checks for cancellation."""

_SOCKET_TIMEOUT_SECONDS = 30.0
"""A process that neither reads nor writes a message for this long is considered dead."""


class Channel:
    """An open channel, which carries one call at a time, and its reply. One thread at a time uses it.

    Args:
        server_socket: the server's socket.
        seconds: timeout of a call outside any request, such as a warm-up.
        niceness: niceness of the threads that use this channel.

    Attributes:
        niceness: as given.
        called_at: `time.monotonic` when the last call was sent.
        awaiting_reply: whether the reply to the last call is outstanding.
    """

    def __init__(self, server_socket: socket.socket, seconds: float, niceness: int) -> None:
        server_socket.settimeout(_SOCKET_TIMEOUT_SECONDS)
        self._socket = server_socket
        self._seconds = seconds
        self.niceness = niceness
        self._memory: SharedMemory | None = None
        self._poll = select.poll()
        self._poll.register(server_socket, select.POLLIN)
        self.called_at = 0.0
        self.awaiting_reply = False

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a reply arrives or the process ends."""
        return self._socket.fileno()

    def call(self, kind: CallKind, inputs: Any = None) -> Reply:
        """Send a call and return its reply.

        Raises:
            InferenceError: if the request is cancelled.
            EOFError: if the process has ended.
            OSError: if the process has ended or does not respond.
        """
        self._send(kind, inputs)
        self._wait()
        reply: Reply = receive(self._socket)[0]
        self.awaiting_reply = False
        if reply.memory_in_use or (self._memory is not None and not self._memory.is_reusable):
            self._memory = None
        return reply

    def cancel(self) -> None:
        """Cancel the call. `fileno` becomes readable when the process has finished it."""
        # The socket may be closed already.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket and release the shared memory."""
        self._memory = None
        self._socket.close()

    def _send(self, kind: CallKind, inputs: Any) -> None:
        message, allocated = Call(kind, niceness=self.niceness), None
        if inputs is not None:
            body, buffers, spans, size = pickle_out_of_band(inputs)
            message = Call(kind, body, spans, self.niceness)
            if buffers and (self._memory is None or self._memory.size < size):
                # The process drops its old memory when it receives new memory.
                self._memory = allocated = _allocate(size)
            if buffers and self._memory is not None:
                self._memory.write(buffers, spans)
        self.called_at, self.awaiting_reply = time.monotonic(), True
        try:
            send(self._socket, message, None if allocated is None else (allocated.descriptor, allocated.size))
        finally:
            if allocated is not None:
                allocated.close_descriptor()

    def _wait(self) -> None:
        if self._poll.poll(_RELEASE_WORKER_SECONDS * 1000):
            return
        with release_worker():
            while True:
                raise_if_cancelled()
                if current_token() is None and time.monotonic() - self.called_at >= self._seconds:
                    message = f"The model did not answer within {self._seconds:g} s"
                    raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message)
                if self._poll.poll(_POLL_SECONDS * 1000):
                    return


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
        self._waiting = WaitingRequests(max_calls, seconds)
        # Keyed by niceness, because a thread without privileges cannot lower its niceness again.
        self._free: dict[int, list[Channel]] = {}
        self._calls = 0
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
        with self._waiting.changed:
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
        with self._waiting.changed:
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
        with self._waiting.changed:
            call = self._abandoned.pop(channel, False)
            channel.close()
        if call:
            self._end_call()

    def close(self) -> None:
        """Close all channels after the process has ended, and wake all waiting requests."""
        with self._waiting.changed:
            self._closed = True
            for channel in (*chain.from_iterable(self._free.values()), *self._abandoned):
                channel.close()
            self._free.clear()
            self._abandoned.clear()
            self._waiting.changed.notify_all()

    def _begin_call(self) -> None:
        with self._waiting.changed:
            self._waiting.wait(lambda: self._closed or self._calls < self._max_calls, keeps_worker=True)
            if self._closed:
                raise ConnectionResetError
            self._calls += 1

    def _end_call(self) -> None:
        with self._waiting.changed:
            self._calls -= 1
            self._waiting.changed.notify()


def _allocate(size: int) -> SharedMemory:
    try:
        return SharedMemory(size)
    except OSError as error:
        message = f"No shared memory is available for the model's inputs: {error.strerror}"
        raise InferenceError(ErrorKind.OVERLOADED, message) from None
