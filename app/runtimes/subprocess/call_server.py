"""Serve the calls that arrive on one channel of a model process."""

import logging
import mmap
import os
import pickle
import select
import socket
import threading
import weakref
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.engine.cancellation import cancellation_scope
from app.engine.error_text import error_text
from app.engine.models.servable import Servable
from app.runtimes.remote import Failure
from app.runtimes.subprocess.messages import Call, MissingMemoryError, receive, send
from tasks.inference.error import ErrorKind, InferenceError

_logger = logging.getLogger(__name__)

_MAX_REUSED_BYTES = 64 * 1024 * 1024
"""Maximum bytes of shared memory that is reused. Both ends release larger memory after the call."""


class CallServer:
    """Serves one call at a time, in its own thread.

    Args:
        channel: the socket that calls arrive on.
        servable: contains the model.
    """

    def __init__(self, channel: socket.socket, servable: Servable) -> None:
        self._channel = channel
        self._servable = servable
        self._niceness: int | None = None
        self._memory: mmap.mmap | None = None
        self._chunks: Generator[Any] = (chunk for chunk in ())
        self._cancellation = _ChannelCancellation(channel)

    def serve(self) -> None:
        """Serve calls until the server closes its end."""
        with self._channel, suppress(EOFError, ConnectionError):
            try:
                while True:
                    self._serve_next()
            finally:
                self._chunks.close()

    def _serve_next(self) -> None:
        """Serve the next call. Its own frame releases the inputs before the thread waits again."""
        try:
            call, memory = receive(self._channel)
        except MissingMemoryError:
            message = "The model's process has no memory, or no descriptor, for the inputs"
            self._send(Failure(ErrorKind.OVERLOADED, message), memory_is_reusable=False)
            return
        # New memory replaces the old, which the server no longer writes to for this channel.
        self._memory = memory or self._memory
        arrays: list[NDArray[np.uint8]] = []
        if self._memory is not None:
            arrays = [np.frombuffer(self._memory, np.uint8, length, offset) for offset, length in call.spans]
        outcome = self._outcome(call, arrays)
        is_small = self._memory is None or len(self._memory) <= _MAX_REUSED_BYTES
        self._send(outcome, memory_is_reusable=_release(arrays) and is_small)

    def _send(self, outcome: object, *, memory_is_reusable: bool) -> None:
        if not memory_is_reusable:
            self._memory = None
        try:
            send(self._channel, (outcome, memory_is_reusable))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  pickling can raise any type
            message = f"The model's answer cannot be pickled: {error_text(error)}"
            send(self._channel, (Failure(ErrorKind.MODEL_FAILED, message), memory_is_reusable))

    def _outcome(self, call: Call, arrays: Sequence[NDArray[np.uint8]]) -> Any:
        try:
            with cancellation_scope(self._cancellation):
                return self._run_call(call, arrays)
        except InferenceError as error:
            if error.kind is ErrorKind.MODEL_FAILED:
                _logger.exception("isolated model failed")
            return Failure.from_error(error)
        except BaseException as error:  # `SystemExit` from model code must not end this thread
            _logger.exception("isolated model failed")
            return Failure(ErrorKind.MODEL_FAILED, f"The model failed: {error_text(error)}")

    def _run_call(self, call: Call, arrays: Sequence[NDArray[np.uint8]]) -> Any:
        if call.niceness != self._niceness:
            # The system may forbid a change of priority.
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), call.niceness)
            self._niceness = call.niceness
        model = self._servable.model
        inputs: Any = pickle.loads(call.inputs, buffers=arrays)  # noqa: S301  the server itself sends it
        match call.kind:
            case "predict":
                return list(model(inputs))
            case "stream":
                self._chunks = cast("Any", model).stream(inputs)
                return next(self._chunks, None)
            case "next":
                return next(self._chunks, None)
            case "close":
                return self._chunks.close()
            case "explain" | "log_likelihoods":
                return list(getattr(model, call.kind)(*inputs))
            case "downscale":
                return 1.0 if self._servable.downscale is None else self._servable.downscale(*inputs)


def _release(arrays: list[NDArray[np.uint8]]) -> bool:
    """Drop the arrays, and return whether no object that was unpickled still refers to them."""
    references = [weakref.ref(array) for array in arrays]
    arrays.clear()
    return all(reference() is None for reference in references)


class _ChannelCancellation:
    """Cancels a call when the server closes its end of the channel.

    During a call the socket becomes readable only when the server disconnects.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    @property
    def cancellation(self) -> InferenceError | None:
        """Return an error once the server has disconnected."""
        if self._poll.poll(0):
            return InferenceError(ErrorKind.CANCELLED, "The request was cancelled")
        return None
