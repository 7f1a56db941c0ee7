"""The server's end of a line into a model's process: one question at a time, and its reply."""

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

_AT_WORK_SECONDS = 0.5
"""So long a worker's place is kept for a call. From then on another request has it: this one may hang."""

_GLANCE_SECONDS = 0.2
"""Whether the sender of a request that waits is still there."""

_SECONDS_FOR_BYTES = 30.0
"""A process that takes or sends none of a message for so long is not alive."""


class Line:
    """A line that is open. Used by one thread at a time.

    Args:
        ours: this end's socket.
        seconds: a call for which nobody in particular waits may take so long.
        niceness: of the threads that use it.

    Attributes:
        niceness: as given.
        asked: when the last question was asked, by `time.monotonic`.
        open_question: whether there was no reply to it yet.
    """

    def __init__(self, ours: socket.socket, seconds: float, niceness: int) -> None:
        ours.settimeout(_SECONDS_FOR_BYTES)
        self._socket = ours
        self._seconds = seconds
        self.niceness = niceness
        self._memory: SharedMemory | None = None
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self.asked = 0.0
        self.open_question = False

    def fileno(self) -> int:
        """Readable once there is a reply, or never will be."""
        return self._socket.fileno()

    def ask(self, kind: Literal["predict", "stream", "next", "close", "detail"], given: Any = None) -> Reply:
        """The reply to a question.

        Raises:
            InferenceError: when nobody waits any more for it.
            EOFError: when the process has ended.
            OSError: when it has, or does not behave as if it were alive.
        """
        self._send(kind, given)
        self._wait()
        reply: Reply = receive(self._socket)[0]
        self.open_question = False
        if reply.kept or (self._memory is not None and not self._memory.worth_keeping):
            self._memory = None
        return reply

    def hang_up(self) -> None:
        """Want no reply any more. The process sees that, and `fileno` tells when it has done with the question."""
        # What is closed for good cannot tell.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Be done with it."""
        self._memory = None
        self._socket.close()

    def _send(self, kind: Literal["predict", "stream", "next", "close", "detail"], given: Any) -> None:
        question, made = Question(kind, niceness=self.niceness), None
        if given is not None:
            body, buffers, spans, size = laid_out(given)
            question = Question(kind, body, spans, self.niceness)
            if buffers and (self._memory is None or self._memory.size < size):
                # The other end forgets its memory when it is given other.
                self._memory = made = _memory(size)
            if buffers and self._memory is not None:
                self._memory.write(buffers, spans)
        self.asked, self.open_question = time.monotonic(), True
        try:
            send(self._socket, question, None if made is None else (made.descriptor, made.size))
        finally:
            if made is not None:
                made.close_descriptor()

    def _wait(self) -> None:
        if self._poll.poll(_AT_WORK_SECONDS * 1000):
            return
        with waiting_elsewhere():
            while True:
                check_interest()
                if current_interest() is None and time.monotonic() - self.asked >= self._seconds:
                    message = f"The model did not answer within {self._seconds:g} s"
                    raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message)
                if self._poll.poll(_GLANCE_SECONDS * 1000):
                    return


def _memory(size: int) -> SharedMemory:
    try:
        return SharedMemory(size)
    except OSError as error:
        message = f"There is no memory to hand the inputs to the model's process in: {error.strerror}"
        raise InferenceError(ErrorKind.OVERLOADED, message) from None
