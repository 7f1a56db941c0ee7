"""How a model's own process answers on one line: a question, a reply, and so on."""

import logging
import mmap
import os
import select
import socket
import threading
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from app.engine.interest import on_behalf_of
from app.engine.reasons import told
from app.engine.servable import BoundServable
from app.runtimes.isolated.memory import LARGEST_KEPT, Arrived
from app.runtimes.isolated.messages import Ended, Failure, LostMemoryError, Question, Reply, receive, send
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Line",)

_logger = logging.getLogger(__name__)


class Line:
    """Asked for one thing at a time, in a thread of its own.

    Args:
        line: where questions come from.
        servable: has the model.
    """

    def __init__(self, line: socket.socket, servable: BoundServable[Any, Any]) -> None:
        self._line = line
        self._servable = servable
        self._niceness: int | None = None
        self._memory: mmap.mmap | None = None
        self._arrived = Arrived(None, ())
        self._pieces: Generator[Any] | None = None
        self._interest = _Listening(line)

    def serve(self) -> None:
        """Answer until the server closes its end."""
        with self._line, suppress(EOFError, ConnectionError):
            try:
                while True:
                    try:
                        question, memory = receive(self._line)
                    except LostMemoryError:
                        self._refuse()
                        continue
                    # The old memory is another's, or nobody's, as soon as there is new.
                    self._memory = memory or self._memory
                    self._reply(question)
                    del question, memory
            finally:
                self._close()

    def _refuse(self) -> None:
        """Answer without the inputs, which did not arrive. The server is to make other memory for the next ones."""
        self._memory = None
        failure = Failure(ErrorKind.OVERLOADED, "The model's process has no memory, or no descriptor, for the inputs")
        send(self._line, Reply(failure, kept=True))

    def _reply(self, question: Question) -> None:
        outcome = self._outcome(question)
        kept = False
        if self._pieces is None:
            kept = not self._arrived.let_go()
            if kept or (self._memory is not None and len(self._memory) > LARGEST_KEPT):
                self._memory = None
            self._arrived = Arrived(None, ())
        try:
            send(self._line, Reply(outcome, kept))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  whatever there is in it that cannot be pickled
            failure = Failure(ErrorKind.MODEL_FAILED, f"The model's answer cannot leave its process: {told(error)}")
            send(self._line, Reply(failure, kept))

    def _outcome(self, question: Question) -> Any:
        try:
            with on_behalf_of(self._interest):
                return self._answer(question)
        except InferenceError as error:
            if error.kind is ErrorKind.MODEL_FAILED:
                _logger.exception("isolated model failed")
            self._close()
            return Failure.of(error)
        except BaseException as error:  # an order to stop among them, which is obeyed by nobody here
            _logger.exception("isolated model failed")
            self._close()
            return Failure(ErrorKind.MODEL_FAILED, f"The model failed: {told(error)}")

    def _answer(self, question: Question) -> Any:
        if question.niceness != self._niceness:
            # The system may have it that a thread is to stay as it is.
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), question.niceness)
            self._niceness = question.niceness
        match question.kind:
            case "predict":
                return list(self._servable.model(self._given(question)))
            case "stream":
                model: Any = self._servable.model
                self._pieces = model.stream(self._given(question))
                return self._next_piece()
            case "next":
                return self._next_piece()
            case "close":
                self._close()
                return Ended()
            case "detail":
                detail = self._servable.detail
                return 1.0 if detail is None else detail(*self._given(question))

    def _given(self, question: Question) -> Any:
        self._arrived = Arrived(self._memory, question.spans)
        return self._arrived.read(question.given)

    def _next_piece(self) -> Any:
        if self._pieces is None:
            return Ended()
        piece = next(self._pieces, None)
        if piece is None:
            self._close()
            return Ended()
        return piece

    def _close(self) -> None:
        pieces, self._pieces = self._pieces, None
        if pieces is not None:
            pieces.close()


class _Listening:
    """The interest of whoever is at the other end of a line.

    Before they are answered something comes from them only when they hang up.
    """

    def __init__(self, line: socket.socket) -> None:
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)

    @property
    def loss(self) -> InferenceError | None:
        """Why nobody waits any more."""
        if self._poll.poll(0):
            return InferenceError(ErrorKind.CANCELLED, "Nobody waits for this answer any more")
        return None
