"""The main function of a model process: load the model, and serve the calls on each channel that the server opens."""

import ctypes
import errno
import gc
import logging
import logging.handlers
import mmap
import os
import pickle
import resource
import select
import signal
import socket
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.engine.cancellation import cancellation_scope
from app.core.engine.error_text import error_text
from app.core.engine.models.servable import HealthReporting, Servable
from app.core.server.process_setup import configure_process, freeze_garbage
from app.core.settings.model import ModelError, ModelSource
from app.plugins.isolation.messages import Call, MissingMemoryError, receive, send
from app.plugins.isolation.remote import Binding, Failure, ModelUnavailable
from app.plugins.isolation.settings import IsolationSettings
from tasks.inference.error import ErrorKind, InferenceError

_logger = logging.getLogger(__name__)

# From Linux's prctl.h.
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15

_HEALTH_CHECK_SECONDS = 1.0
"""Interval between checks whether the model can still answer."""

_MAX_REUSED_BYTES = 64 * 1024 * 1024
"""Maximum bytes of shared memory that is reused. Both ends release larger memory after the call."""

_OOM_SCORE = "500"
"""Adjustment out of 1000: the kernel adds this share of the machine's memory to the process's own use."""


def run_worker(control: socket.socket, name: str) -> None:
    """Load the model and serve calls until the server closes its end of `control`.

    `control` receives the job, then one channel for each byte; it sends the outcome and log records. Process lists show
    `name`.
    """
    _bind_to_server(name)
    (job, source, log_level), _ = receive(control)
    send_lock = threading.Lock()

    def report(message: object) -> None:
        with send_lock:
            send(control, message)

    logging.basicConfig(handlers=[_ServerLogHandler(report)], level=log_level, force=True)
    outcome = _run_job(job, source)
    servable = outcome if isinstance(outcome, Servable) else None
    try:
        report(outcome if servable is None else Binding.of(servable))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        report(ModelUnavailable(f"{source.folder} cannot run in its own process: {error_text(error)}"))
        return
    if servable is None:
        return
    try:
        while _wait_for_channel(control, report, servable.model) and (channel := _next_channel(control)) is not None:
            threading.Thread(target=CallServer(channel, servable).serve, name="channel", daemon=True).start()
    except (OSError, RuntimeError) as error:
        # A new process starts with fresh threads and descriptors.
        report(ModelUnavailable(f"It cannot serve more calls: {error_text(error)}"))


def load_alone(load: Callable[[ModelSource], Servable], source: ModelSource) -> Servable:
    """Load the model with `load` in the process that was started for it."""
    gc.disable()
    configure_process()
    servable = load(source)
    freeze_garbage()
    return servable


def _bind_to_server(name: str) -> None:
    """End whenever the server ends, and ignore signals: the server stops its models after it has drained."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        # Child processes would inherit SIG_IGN, but they do not inherit a handler.
        signal.signal(number, lambda _number, _frame: None)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(_PR_SET_NAME, name.encode()[:15])
    # When memory runs out, the kernel must kill this process and not the server, which restarts it.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _run_job(job: Callable[[ModelSource], object], source: ModelSource) -> object:
    max_bytes, limit = source.settings.of(IsolationSettings).memory_limit_bytes, ""
    if max_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))
        limit = f" (the memory limit of its process is {max_bytes:,} bytes)"
    try:
        return job(source)
    except ModelError as error:
        return ModelUnavailable(f"{error}{limit}")
    except BaseException as error:  # noqa: BLE001  the server must receive every error
        return ModelUnavailable(f"{source.folder} cannot be used: {error_text(error)}{limit}")


def _wait_for_channel(control: socket.socket, report: Callable[[object], None], model: object) -> bool:
    """Wait until the server opens a channel. If the model can no longer answer, report that and return False."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if not isinstance(model, HealthReporting):
        return bool(poll.poll())
    while not poll.poll(_HEALTH_CHECK_SECONDS * 1000):
        if model.unavailable_reason:
            report(ModelUnavailable(model.unavailable_reason))
            return False
    return True


def _next_channel(control: socket.socket) -> socket.socket | None:
    """Receive the socket of a new channel; return None when the server has closed its end."""
    received, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not received:
        return None
    if not descriptors:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return socket.socket(fileno=descriptors[0])


class _ServerLogHandler(logging.handlers.QueueHandler):
    """Sends log records to the server."""

    def __init__(self, report: Callable[[object], None]) -> None:
        super().__init__(cast("Any", None))
        self._report = report

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Convert the record to built-in types, because the server lacks the types of the model's modules."""
        attributes: dict[str, Any] = {**vars(record), "msg": record.getMessage(), "args": None, "exc_info": None}
        if record.exc_info:
            # The name of the server's own field for a traceback.
            attributes["exception"] = logging.Formatter().formatException(record.exc_info)
        fields = {name: msgspec.to_builtins(value, str_keys=True, enc_hook=str) for name, value in attributes.items()}
        return logging.makeLogRecord(fields)

    def enqueue(self, record: logging.LogRecord) -> None:
        # The server may have ended.
        with suppress(OSError):
            self._report(record.__dict__)


class CallServer:
    """Serves the calls that arrive on one channel, one at a time, in its own thread."""

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
            case "explain":
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
