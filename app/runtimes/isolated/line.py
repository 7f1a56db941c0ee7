"""The server's end of a channel to a model process: one call at a time, and its reply."""

import select
import socket
import time
from contextlib import suppress
from typing import Any, Literal

from app.engine.interest import check_interest, current_interest
from app.engine.workers import waiting_elsewhere
from app.runtimes.isolated.memory import SharedMemory, laid_out
from app.runtimes.isolated.messages import Question, Reply, receive, send
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Line",)

_RELEASE_WORKER_SECONDS = 0.5
"""A call that takes longer releases its worker, because it may hang."""

_POLL_SECONDS = 0.2
"""Interval between checks for cancellation."""

_SOCKET_TIMEOUT_SECONDS = 30.0
"""A process that neither reads nor writes a message for this long is considered dead."""


class Line:
    """An open channel. One thread at a time uses it.

    Args:
        ours: the server's socket.
        seconds: timeout of a call outside any request, such as a warm-up.
        niceness: niceness of the threads that use this channel.

    Attributes:
        niceness: as given.
        asked: `time.monotonic` when the last call was sent.
        open_question: whether the reply to the last call is outstanding.
    """

    def __init__(self, ours: socket.socket, seconds: float, niceness: int) -> None:
        ours.settimeout(_SOCKET_TIMEOUT_SECONDS)
        self._socket = ours
        self._seconds = seconds
        self.niceness = niceness
        self._memory: SharedMemory | None = None
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self.asked = 0.0
        self.open_question = False

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a reply arrives or the process ends."""
        return self._socket.fileno()

    def ask(self, kind: Literal["predict", "stream", "next", "close", "detail"], given: Any = None) -> Reply:
        """Send a call and return its reply.

        Raises:
            InferenceError: if the request is cancelled.
            EOFError: if the process has ended.
            OSError: if the process has ended or does not respond.
        """
        self._send(kind, given)
        self._wait()
        reply: Reply = receive(self._socket)[0]
        self.open_question = False
        if reply.kept or (self._memory is not None and not self._memory.worth_keeping):
            self._memory = None
        return reply

    def hang_up(self) -> None:
        """Cancel the call. `fileno` becomes readable when the process has finished it."""
        # The socket may be closed already.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket and release the shared memory."""
        self._memory = None
        self._socket.close()

    def _send(self, kind: Literal["predict", "stream", "next", "close", "detail"], given: Any) -> None:
        question, allocated = Question(kind, niceness=self.niceness), None
        if given is not None:
            body, buffers, spans, size = laid_out(given)
            question = Question(kind, body, spans, self.niceness)
            if buffers and (self._memory is None or self._memory.size < size):
                # The process drops its old memory when it receives new memory.
                self._memory = allocated = _memory(size)
            if buffers and self._memory is not None:
                self._memory.write(buffers, spans)
        self.asked, self.open_question = time.monotonic(), True
        try:
            send(self._socket, question, None if allocated is None else (allocated.descriptor, allocated.size))
        finally:
            if allocated is not None:
                allocated.close_descriptor()

    def _wait(self) -> None:
        if self._poll.poll(_RELEASE_WORKER_SECONDS * 1000):
            return
        with waiting_elsewhere():
            while True:
                check_interest()
                if current_interest() is None and time.monotonic() - self.asked >= self._seconds:
                    message = f"The model did not answer within {self._seconds:g} s"
                    raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message)
                if self._poll.poll(_POLL_SECONDS * 1000):
                    return


def _memory(size: int) -> SharedMemory:
    try:
        return SharedMemory(size)
    except OSError as error:
        message = f"No shared memory is available for the model's inputs: {error.strerror}"
        raise InferenceError(ErrorKind.OVERLOADED, message) from None
