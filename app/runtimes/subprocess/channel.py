"""The server's end of a channel to a model process: one call at a time, and its reply."""

import select
import socket
import time
from contextlib import suppress
from typing import Any

from app.engine.cancellation import current_token, raise_if_cancelled
from app.engine.scheduling.thread_pool import release_worker
from app.runtimes.subprocess.memory import SharedMemory, pickle_out_of_band
from app.runtimes.subprocess.messages import Call, CallKind, Reply, receive, send
from tasks.inference.error import ErrorKind, InferenceError

_RELEASE_WORKER_SECONDS = 0.5
"""A call that takes longer releases its worker, because it may hang."""

_POLL_SECONDS = 0.2
"""Interval between checks for cancellation."""

_SOCKET_TIMEOUT_SECONDS = 30.0
"""A process that neither reads nor writes a message for this long is considered dead."""


class Channel:
    """An open channel. One thread at a time uses it.

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


def _allocate(size: int) -> SharedMemory:
    try:
        return SharedMemory(size)
    except OSError as error:
        message = f"No shared memory is available for the model's inputs: {error.strerror}"
        raise InferenceError(ErrorKind.OVERLOADED, message) from None
