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

from app.engine.cancellation import cancellation_scope
from app.engine.error_text import error_text
from app.engine.models.servable import Servable
from app.runtimes.remote import Failure
from app.runtimes.subprocess.memory import MAX_REUSED_BYTES, ReceivedBuffers
from app.runtimes.subprocess.messages import Call, MissingMemoryError, Reply, StreamEnd, receive, send
from tasks.inference.error import ErrorKind, InferenceError

_logger = logging.getLogger(__name__)


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
        self._buffers = ReceivedBuffers(None, ())
        self._chunks: Generator[Any] | None = None
        self._cancellation = _ChannelCancellation(channel)

    def serve(self) -> None:
        """Serve calls until the server closes its end."""
        with self._channel, suppress(EOFError, ConnectionError):
            try:
                while True:
                    try:
                        call, memory = receive(self._channel)
                    except MissingMemoryError:
                        self._reply_without_memory()
                        continue
                    # New memory replaces the old, which the server no longer writes to for this channel.
                    self._memory = memory or self._memory
                    self._reply(call)
                    del call, memory
            finally:
                self._close()

    def _reply_without_memory(self) -> None:
        """Reply with an error because the inputs did not arrive, and make the server allocate new memory."""
        self._memory = None
        failure = Failure(ErrorKind.OVERLOADED, "The model's process has no memory, or no descriptor, for the inputs")
        send(self._channel, Reply(failure, memory_in_use=True))

    def _reply(self, call: Call) -> None:
        outcome = self._outcome(call)
        memory_in_use = False
        if self._chunks is None:
            memory_in_use = not self._buffers.release()
            if memory_in_use or (self._memory is not None and len(self._memory) > MAX_REUSED_BYTES):
                self._memory = None
            self._buffers = ReceivedBuffers(None, ())
        try:
            send(self._channel, Reply(outcome, memory_in_use))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  pickling can raise any type
            failure = Failure(ErrorKind.MODEL_FAILED, f"The model's answer cannot be pickled: {error_text(error)}")
            send(self._channel, Reply(failure, memory_in_use))

    def _outcome(self, call: Call) -> Any:
        try:
            with cancellation_scope(self._cancellation):
                return self._run_call(call)
        except InferenceError as error:
            if error.kind is ErrorKind.MODEL_FAILED:
                _logger.exception("isolated model failed")
            self._close()
            return Failure.from_error(error)
        except BaseException as error:  # `SystemExit` from model code must not end this thread
            _logger.exception("isolated model failed")
            self._close()
            return Failure(ErrorKind.MODEL_FAILED, f"The model failed: {error_text(error)}")

    def _run_call(self, call: Call) -> Any:
        if call.niceness != self._niceness:
            # The system may forbid a change of priority.
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), call.niceness)
            self._niceness = call.niceness
        match call.kind:
            case "predict":
                return list(self._servable.model(self._read_inputs(call)))
            case "stream":
                model: Any = self._servable.model
                self._chunks = model.stream(self._read_inputs(call))
                return self._next_chunk()
            case "next":
                return self._next_chunk()
            case "close":
                self._close()
                return StreamEnd()
            case "explain" | "log_likelihoods":
                return list(getattr(self._servable.model, call.kind)(*self._read_inputs(call)))
            case "downscale":
                downscale = self._servable.downscale
                return 1.0 if downscale is None else downscale(*self._read_inputs(call))

    def _read_inputs(self, call: Call) -> Any:
        self._buffers = ReceivedBuffers(self._memory, call.spans)
        return self._buffers.unpickle(call.inputs)

    def _next_chunk(self) -> Any:
        if self._chunks is None:
            return StreamEnd()
        chunk = next(self._chunks, None)
        if chunk is None:
            self._close()
            return StreamEnd()
        return chunk

    def _close(self) -> None:
        chunks, self._chunks = self._chunks, None
        if chunks is not None:
            chunks.close()


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
