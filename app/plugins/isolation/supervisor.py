"""Keep a model process running: start it, monitor it, and restart it."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any

from app.core.engine.error_text import redact_paths
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ServerSettings
from app.plugins.isolation.channels import Channel, ChannelPool
from app.plugins.isolation.messages import CallKind, InvalidMessageError
from app.plugins.isolation.process import ModelProcess
from app.plugins.isolation.remote import Binding
from tasks.inference.error import ErrorKind, InferenceError

OnProcessLost = Callable[[ModelSource, str], None]
"""Called for each process that is lost, with its model and a short reason."""

_GRACE_SECONDS = 5.0
"""Extra time for runtimes that enforce the timeout themselves, such as the Python runtime."""

_MAX_DELAY_SECONDS = 60.0
_HEALTHY_SECONDS = 60.0
"""A process that runs this long resets the restart delay."""

_logger = logging.getLogger(__name__)


class Supervisor:
    """A thread that runs until the model is unloaded. The process loads the model with `job`."""

    def __init__(
        self, source: ModelSource, job: Callable[[ModelSource], object], on_lost: OnProcessLost | None
    ) -> None:
        self._source = source
        self._job = job
        self._on_lost: OnProcessLost = on_lost or (lambda _source, _reason: None)
        self._fields = {"model": source.name, "version": source.version}
        # Twice the default number of workers, because some calls hang or wait.
        self._max_calls = max(4, 2 * ServerSettings().worker_count)
        self._seconds = source.settings.timeout_seconds
        self._hang_seconds = self._seconds + _GRACE_SECONDS
        self._delay = 1.0
        self._channels: ChannelPool | None = None
        self._binding: Future[Binding] = Future()
        self._closing = False
        self._state_lock = threading.Lock()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._wake_sender.setblocking(False)
        self.unavailable_reason = ""
        self.thread = threading.Thread(target=self._run, name=f"process of {source.name}", daemon=True)
        self.thread.start()

    def binding(self) -> Binding:
        """Wait for the first load, and return the servable without its model.

        Raise ModelError if the model cannot be loaded.
        """
        return self._binding.result()

    def call(self, kind: CallKind, inputs: Any) -> Any:
        """Make one call and return its outcome.

        Raise InferenceError if the model fails, or its process ends or hangs.
        """
        with self.channel() as channel:
            return channel.call(kind, inputs)

    @contextmanager
    def channel(self, *, counted: bool = True) -> Generator[Channel]:
        """Acquire a channel to the running process, as `ChannelPool.lease` does.

        Raise MODEL_NOT_READY while no process runs, or if it ends or hangs; errors of `lease`.
        """
        channels = self._channels
        if channels is None:
            reason = redact_paths(self.unavailable_reason, self._source) or "The model was unloaded"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, reason)
        try:
            with channels.lease(counted=counted) as channel:
                yield channel
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                channels.process.kill("it hung: it did not read or write a message in time")
            elif isinstance(error, InvalidMessageError):
                channels.process.kill("its answer cannot be read")
            raise self._ended_error(channels) from None

    @property
    def resident_bytes(self) -> int | None:
        """Return the resident memory of the running process in bytes, None while none runs."""
        channels = self._channels
        return None if channels is None else channels.process.resident_bytes

    def close(self) -> None:
        """Stop the process in the background."""
        # The garbage collector may call this at any point, so it must not take a lock.
        self._closing = True
        self._wake()

    def _run(self) -> None:
        try:
            self._keep_running()
        except Exception:
            _logger.exception("model process is no longer supervised", extra=self._fields)
            self._publish(None, f"The process of model {self._source.name!r} was lost; reload the model")
        finally:
            self._channels = None
            self._wake_sender.close()
            self._wake_receiver.close()

    def _keep_running(self) -> None:
        process: ModelProcess | None
        try:
            process, binding = self._start()
        except BaseException as error:  # noqa: BLE001  `binding` raises it in the loading thread
            self._binding.set_exception(error)
            return
        while process is not None:
            channels = ChannelPool(process, self._max_calls, self._seconds, self._wake)
            self._publish(channels)
            if not self._binding.done():
                self._binding.set_result(binding)
            self._monitor(process, channels)
            process = self._restart(binding)

    def _start(self) -> tuple[ModelProcess, Binding]:
        try:
            process = ModelProcess(self._source, self._job)
        except OSError as error:
            raise ModelError(f"{self._source.folder}: its process cannot be started: {error}") from error
        try:
            binding: Binding = process.outcome(self._source.settings.load_timeout_seconds, lambda: not self._closing)
        except BaseException:
            process.kill("it was not loaded")
            process.close()
            raise
        return process, binding

    def _monitor(self, process: ModelProcess, channels: ChannelPool) -> None:
        """Wait until the process ends or the model is unloaded, then clean up."""
        started = time.monotonic()
        self._watch_process(process, channels)
        if self._closing:
            if channels.calls:
                # The remaining calls are cancelled, and a graceful stop would wait for them.
                process.kill("it was still in a call when it had to stop")
            process.close()
            channels.close()
            return
        calls, reason = channels.calls, process.wait_ended()
        self._publish(None, self._ended_message(reason))
        channels.close()
        process.close()
        if time.monotonic() - started >= _HEALTHY_SECONDS:
            self._delay = 1.0
        fields = {**self._fields, "how": reason, "calls": calls, "again_in_seconds": self._delay}
        _logger.error("model process ended", extra=fields)
        self._on_lost(self._source, reason)

    def _restart(self, first_binding: Binding) -> ModelProcess | None:
        """Retry until a process is ready, and return it; return None once the model is unloaded."""
        while self._wait(self._delay):
            self._delay = min(2 * self._delay, _MAX_DELAY_SECONDS)
            try:
                process, binding = self._start()
                if _interface(binding) != _interface(first_binding):
                    process.close()
                    raise ModelError("its files have changed since it was loaded; reload it")
            except ModelError as error:
                if self._closing:
                    return None
                self._publish(None, f"The model could not be restarted; the server keeps trying: {error}")
                fields = {**self._fields, "reason": str(error), "again_in_seconds": self._delay}
                _logger.error("model process failed to start", extra=fields)
                self._on_lost(self._source, f"it was not loaded: {error}")
                continue
            _logger.info("model process started again", extra=self._fields)
            return process
        return None

    def _wait(self, seconds: float) -> bool:
        """Wait for `seconds`. Return False as soon as the model is unloaded."""
        deadline = time.monotonic() + seconds
        while not self._closing and (remaining := deadline - time.monotonic()) > 0:
            if wait([self._wake_receiver], remaining):
                self._wake_receiver.recv(4096)
        return not self._closing

    def _wake(self) -> None:
        # The buffer may be full, so the thread will wake, or the thread has ended.
        with suppress(OSError):
            self._wake_sender.send(b"w")

    def _publish(self, channels: ChannelPool | None, unavailable_reason: str = "") -> None:
        with self._state_lock:
            self._channels, self.unavailable_reason = channels, unavailable_reason

    def _watch_process(self, process: ModelProcess, channels: ChannelPool) -> None:
        """Return when the process ends, hangs, or the model is unloaded."""
        while True:
            abandoned = {channel.fileno(): channel for channel in list(channels.abandoned)}
            due = min((channel.called_at + self._hang_seconds for channel in abandoned.values()), default=None)
            timeout = None if due is None else max(0.0, due - time.monotonic())
            ready = wait([self._wake_receiver, process.fileno(), *abandoned], timeout)
            if self._closing or (process.fileno() in ready and not process.handle_message()):
                return
            if self._wake_receiver in ready:
                self._wake_receiver.recv(4096)
            for descriptor in abandoned.keys() & ready:
                channels.close_abandoned(abandoned.pop(descriptor))
            overdue = time.monotonic() - self._hang_seconds
            if any(channel.called_at <= overdue for channel in abandoned.values()):
                process.kill(f"it hung: no answer to a call within {self._hang_seconds:g} s")
                return

    def _ended_error(self, channels: ChannelPool) -> InferenceError:
        """Return the error for a call whose process has ended or is dead."""
        message = self._ended_message(channels.process.wait_ended(1.0))
        with self._state_lock:
            # A new process may run already.
            if self._channels is channels:
                self.unavailable_reason = message
        return InferenceError(ErrorKind.MODEL_NOT_READY, message)

    def _ended_message(self, reason: str) -> str:
        return f"The process of model {self._source.name!r} ended ({reason}) and is being restarted"


def _interface(binding: Binding) -> object:
    description = binding.description
    return (description.task_type, list(description.labels), list(description.inputs), list(description.outputs))
