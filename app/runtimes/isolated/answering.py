"""Serve the calls that arrive on one channel of a model process."""

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
    """Serves one call at a time, in its own thread.

    Args:
        line: the socket that calls arrive on.
        servable: contains the model.
    """

    def __init__(self, line: socket.socket, servable: BoundServable[Any, Any]) -> None:
        self._line = line
        self._servable = servable
        self._niceness: int | None = None
        self._memory: mmap.mmap | None = None
        self._arrived = Arrived(None, ())
        self._chunks: Generator[Any] | None = None
        self._interest = _ChannelCancellation(line)

    def serve(self) -> None:
        """Serve calls until the server closes its end."""
        with self._line, suppress(EOFError, ConnectionError):
            try:
                while True:
                    try:
                        question, memory = receive(self._line)
                    except LostMemoryError:
                        self._reply_without_inputs()
                        continue
                    # New memory replaces the old, which the server no longer writes to for this channel.
                    self._memory = memory or self._memory
                    self._reply(question)
                    del question, memory
            finally:
                self._close()

    def _reply_without_inputs(self) -> None:
        """Reply with an error because the inputs did not arrive. `kept` makes the server allocate new memory."""
        self._memory = None
        failure = Failure(ErrorKind.OVERLOADED, "The model's process has no memory, or no descriptor, for the inputs")
        send(self._line, Reply(failure, kept=True))

    def _reply(self, question: Question) -> None:
        outcome = self._outcome(question)
        kept = False
        if self._chunks is None:
            kept = not self._arrived.let_go()
            if kept or (self._memory is not None and len(self._memory) > LARGEST_KEPT):
                self._memory = None
            self._arrived = Arrived(None, ())
        try:
            send(self._line, Reply(outcome, kept))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  pickling can raise any type
            failure = Failure(ErrorKind.MODEL_FAILED, f"The model's answer cannot be pickled: {told(error)}")
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
        except BaseException as error:  # `SystemExit` from model code must not end this thread
            _logger.exception("isolated model failed")
            self._close()
            return Failure(ErrorKind.MODEL_FAILED, f"The model failed: {told(error)}")

    def _answer(self, question: Question) -> Any:
        if question.niceness != self._niceness:
            # The system may forbid a change of priority.
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), question.niceness)
            self._niceness = question.niceness
        match question.kind:
            case "predict":
                return list(self._servable.model(self._given(question)))
            case "stream":
                model: Any = self._servable.model
                self._chunks = model.stream(self._given(question))
                return self._next_chunk()
            case "next":
                return self._next_chunk()
            case "close":
                self._close()
                return Ended()
            case "detail":
                detail = self._servable.detail
                return 1.0 if detail is None else detail(*self._given(question))

    def _given(self, question: Question) -> Any:
        self._arrived = Arrived(self._memory, question.spans)
        return self._arrived.read(question.given)

    def _next_chunk(self) -> Any:
        if self._chunks is None:
            return Ended()
        chunk = next(self._chunks, None)
        if chunk is None:
            self._close()
            return Ended()
        return chunk

    def _close(self) -> None:
        chunks, self._chunks = self._chunks, None
        if chunks is not None:
            chunks.close()


class _ChannelCancellation:
    """Cancels a call when the server closes its end of the channel.

    During a call the socket becomes readable only when the server disconnects.
    """

    def __init__(self, line: socket.socket) -> None:
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)

    @property
    def loss(self) -> InferenceError | None:
        """Return an error once the server has disconnected."""
        if self._poll.poll(0):
            return InferenceError(ErrorKind.CANCELLED, "The request was cancelled")
        return None
