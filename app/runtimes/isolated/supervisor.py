"""Keep a model process running: start it, monitor it, and restart it."""

import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from app.engine.reasons import without_paths
from app.runtimes.isolated import Lost
from app.runtimes.isolated.lines import Lines
from app.runtimes.isolated.messages import Binding
from app.runtimes.isolated.process import ModelProcess
from app.settings.model import ModelError, ModelSource
from app.settings.server import ServerSettings
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Supervisor",)

_GRACE_SECONDS = 5.0
"""Extra time for runtimes that enforce the timeout themselves, such as the Python runtime."""

_MAX_DELAY_SECONDS = 60.0
_HEALTHY_SECONDS = 60.0
"""A process that runs this long resets the restart delay."""

_logger = logging.getLogger(__name__)


class Supervisor:
    """A thread that runs until the model is unloaded.

    Args:
        source: the model.
        job: loads the model, in the process.
        lost: called for each process that ends unexpectedly or is killed.
    """

    def __init__(self, source: ModelSource, job: Callable[[ModelSource], object], lost: Lost | None) -> None:
        self._source = source
        self._job = job
        self._lost = lost
        # Twice the default number of workers, because some calls hang or wait.
        self._max_calls = max(4, 2 * ServerSettings().worker_count)
        self._seconds = source.settings.timeout_seconds
        self._hang_seconds = self._seconds + _GRACE_SECONDS
        self._delay = 1.0
        self._lines: Lines | None = None
        self._binding: Future[Binding] = Future()
        self._closing = False
        self._state_lock = threading.Lock()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._wake_sender.setblocking(False)
        self.trouble = ""
        self.thread = threading.Thread(target=self._run, name=f"process of {source.name}", daemon=True)
        self.thread.start()

    def binding(self) -> Binding:
        """Wait for the first load, and return the servable without its model.

        Raises:
            ModelError: if the model cannot be loaded.
        """
        return self._binding.result()

    def lines(self) -> Lines:
        """Return the channels to the running process.

        Raises:
            InferenceError: MODEL_NOT_READY while no process runs.
        """
        if self._lines is None:
            reason = without_paths(self.trouble, self._source) or "The model was unloaded"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, reason)
        return self._lines

    def ended(self, lines: Lines) -> InferenceError:
        """Return the error for a call whose process has ended or is dead."""
        message = self._ended_message(lines.process.wait_ended(1.0))
        with self._state_lock:
            # A new process may run already.
            if self._lines is lines:
                self.trouble = message
        return InferenceError(ErrorKind.MODEL_NOT_READY, message)

    def wake(self) -> None:
        """Wake the supervisor thread."""
        try:
            self._wake_sender.send(b"w")
        except OSError:
            # The buffer is full, so the thread will wake, or the thread has ended.
            return

    def close(self) -> None:
        """Stop the process in the background."""
        # The garbage collector may call this at any point, so it must not take a lock.
        self._closing = True
        self.wake()

    def _run(self) -> None:
        try:
            self._keep_running()
        except Exception:
            _logger.exception("model process is not looked after any more", extra=self._fields())
            self._publish(None, f"The process of model {self._source.name!r} was lost; reload the model")
        finally:
            self._lines = None
            self._wake_sender.close()
            self._wake_receiver.close()

    def _keep_running(self) -> None:
        try:
            process, binding = self._start()
        except BaseException as error:  # noqa: BLE001  `binding` raises it in the loading thread
            self._binding.set_exception(error)
            return
        first: Binding = binding
        running: ModelProcess | None = process
        while running is not None:
            lines = Lines(running, self._max_calls, self._seconds)
            self._publish(lines)
            if not self._binding.done():
                self._binding.set_result(first)
            self._monitor(running, lines)
            running = self._restart(first)

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

    def _monitor(self, process: ModelProcess, lines: Lines) -> None:
        """Wait until the process ends or the model is unloaded, then clean up."""
        began = time.monotonic()
        self._watch(process, lines)
        if self._closing:
            if lines.calls:
                # The remaining calls are cancelled, and a graceful stop would wait for them.
                process.kill("it was still in a call when it had to stop")
            process.close()
            lines.close()
            return
        calls, how = lines.calls, process.wait_ended()
        self._publish(None, self._ended_message(how))
        lines.close()
        process.close()
        if time.monotonic() - began >= _HEALTHY_SECONDS:
            self._delay = 1.0
        fields = {**self._fields(), "how": how, "calls": calls, "again_in_seconds": self._delay}
        _logger.error("model process ended", extra=fields)
        self._report_lost(how)

    def _restart(self, first: Binding) -> ModelProcess | None:
        """Retry until a process is ready, and return it; return None once the model is unloaded."""
        while self._wait(self._delay):
            self._delay = min(2 * self._delay, _MAX_DELAY_SECONDS)
            try:
                process, binding = self._start()
                if _shape(binding) != _shape(first):
                    process.close()
                    raise ModelError("its files have changed since it was loaded; reload it")
            except ModelError as error:
                if self._closing:
                    return None
                self._publish(None, f"The model could not be restarted; the server keeps trying: {error}")
                fields = {**self._fields(), "reason": str(error), "again_in_seconds": self._delay}
                _logger.error("model process failed to start", extra=fields)
                self._report_lost(f"it was not loaded: {error}")
                continue
            _logger.info("model process started again", extra=self._fields())
            return process
        return None

    def _wait(self, seconds: float) -> bool:
        """Wait for `seconds`. Return False as soon as the model is unloaded."""
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        while not self._closing and (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1000 + 1):
                self._wake_receiver.recv(4096)
        return not self._closing

    def _report_lost(self, how: str) -> None:
        if self._lost is not None:
            self._lost(self._source, how)

    def _publish(self, lines: Lines | None, trouble: str = "") -> None:
        with self._state_lock:
            self._lines, self.trouble = lines, trouble

    def _watch(self, process: ModelProcess, lines: Lines) -> None:
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        poll.register(process, select.POLLIN)
        watched: dict[int, Any] = {}
        while True:
            for line in lines.left:
                if line.fileno() not in watched:
                    watched[line.fileno()] = line
                    poll.register(line, select.POLLIN)
            due = min((line.asked + self._hang_seconds for line in watched.values()), default=None)
            ready = dict(poll.poll(None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1))
            if self._closing or (process.fileno() in ready and not process.listen()):
                return
            if self._wake_receiver.fileno() in ready:
                self._wake_receiver.recv(4096)
            for descriptor in ready.keys() & watched.keys():
                poll.unregister(descriptor)
                lines.answered(watched.pop(descriptor))
            if due is not None and watched and time.monotonic() >= due:
                self._kill_overdue(process, [line.asked for line in watched.values()])

    def _kill_overdue(self, process: ModelProcess, call_times: list[float]) -> None:
        if any(time.monotonic() - call_time >= self._hang_seconds for call_time in call_times):
            process.kill(f"it hung: no answer to a call within {self._hang_seconds:g} s")

    def _ended_message(self, how: str) -> str:
        return f"The process of model {self._source.name!r} ended ({how}) and is being restarted"

    def _fields(self) -> dict[str, str]:
        return {"model": self._source.name, "version": self._source.version}


def _shape(binding: Binding) -> object:
    described = binding.description
    return (described.task_type, list(described.labels), list(described.inputs), list(described.outputs))
