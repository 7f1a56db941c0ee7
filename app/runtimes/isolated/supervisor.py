"""Keeps a process of a model running: starts it, looks after it, and starts it again."""

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
"""A runtime that ends calls by itself, as that of Python models does, is given so long to do so."""

_LONGEST_DELAY = 60.0
_HEALTHY_SECONDS = 60.0
"""A process that has lived so long was no attempt."""

_logger = logging.getLogger(__name__)


class Supervisor:
    """One thread, which lives as long as the model is wanted.

    Args:
        source: the model.
        job: loads it, in the process.
        lost: told of every process that ends by itself or has to be killed.
    """

    def __init__(self, source: ModelSource, job: Callable[[ModelSource], object], lost: Lost | None) -> None:
        self._source = source
        self._job = job
        self._lost = lost
        # As many as a server has workers by itself, and as many again, because some of them hang or wait.
        self._calls = max(4, 2 * ServerSettings().worker_count)
        self._seconds = source.settings.timeout_seconds
        self._patience = self._seconds + _GRACE_SECONDS
        self._delay = 1.0
        self._lines: Lines | None = None
        self._binding: Future[Binding] = Future()
        self._closing = False
        self._changing = threading.Lock()
        self._waking, self._woken = socket.socketpair()
        self._waking.setblocking(False)
        self.trouble = ""
        self.thread = threading.Thread(target=self._work, name=f"process of {source.name}", daemon=True)
        self.thread.start()

    def binding(self) -> Binding:
        """What the model is, once it is loaded for the first time.

        Raises:
            ModelError: when it cannot be.
        """
        return self._binding.result()

    def lines(self) -> Lines:
        """Those to the process that runs.

        Raises:
            InferenceError: MODEL_NOT_READY while there is none.
        """
        if self._lines is None:
            reason = without_paths(self.trouble, self._source) or "The model was unloaded"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, reason)
        return self._lines

    def ended(self, lines: Lines) -> InferenceError:
        """A call has found that its process has ended, or cannot be alive."""
        told = self._told(lines.process.ended(1.0))
        with self._changing:
            # Another may run by now, which is in no trouble.
            if self._lines is lines:
                self.trouble = told
        return InferenceError(ErrorKind.MODEL_NOT_READY, told)

    def wake(self) -> None:
        """Have the thread look at what there is."""
        try:
            self._waking.send(b"w")
        except OSError:
            # It has enough to wake up for, or is gone.
            return

    def close(self) -> None:
        """The model is not wanted any more: its process ends, within some seconds. Does not wait for that."""
        # Without a lock: the garbage collector may call this in the middle of anything.
        self._closing = True
        self.wake()

    def _work(self) -> None:
        try:
            self._serve()
        except Exception:
            _logger.exception("model process is not looked after any more", extra=self._fields())
            self._offer(None, f"The process of model {self._source.name!r} was lost; load it anew")
        finally:
            self._lines = None
            self._waking.close()
            self._woken.close()

    def _serve(self) -> None:
        try:
            process, binding = self._started()
        except BaseException as error:  # noqa: BLE001  it belongs to whoever waits for the model
            self._binding.set_exception(error)
            return
        first: Binding = binding
        running: ModelProcess | None = process
        while running is not None:
            lines = Lines(running, self._calls, self._seconds)
            self._offer(lines)
            if not self._binding.done():
                self._binding.set_result(first)
            self._look_after(running, lines)
            running = self._restarted(first)

    def _started(self) -> tuple[ModelProcess, Binding]:
        try:
            process = ModelProcess(self._source, self._job)
        except OSError as error:
            raise ModelError(f"{self._source.folder}: no process can be started for it: {error}") from error
        try:
            binding: Binding = process.outcome(self._source.settings.load_timeout_seconds, lambda: not self._closing)
        except BaseException:
            process.kill("it was not loaded")
            process.close()
            raise
        return process, binding

    def _look_after(self, process: ModelProcess, lines: Lines) -> None:
        """Wait until the process has ended, or is to end."""
        began = time.monotonic()
        self._watch(process, lines)
        if self._closing:
            if lines.calls:
                # Whoever asked has gone: it would not end before it has answered.
                process.kill("it had not answered when it was to end")
            process.close()
            lines.close()
            return
        calls, how = lines.calls, process.ended()
        self._offer(None, self._told(how))
        lines.close()
        process.close()
        if time.monotonic() - began >= _HEALTHY_SECONDS:
            self._delay = 1.0
        fields = {**self._fields(), "how": how, "calls": calls, "again_in_seconds": self._delay}
        _logger.error("model process ended", extra=fields)
        self._count(how)

    def _restarted(self, first: Binding) -> ModelProcess | None:
        """A process that is ready again; None when none is wanted any more."""
        while self._rests(self._delay):
            self._delay = min(2 * self._delay, _LONGEST_DELAY)
            try:
                process, binding = self._started()
                if _shape(binding) != _shape(first):
                    process.close()
                    raise ModelError("its files are not those that it was loaded from; load it anew")
            except ModelError as error:
                if self._closing:
                    return None
                self._offer(None, f"The model could not be started again, which is tried again and again: {error}")
                fields = {**self._fields(), "reason": str(error), "again_in_seconds": self._delay}
                _logger.error("model process failed to start", extra=fields)
                self._count(f"it was not loaded: {error}")
                continue
            _logger.info("model process started again", extra=self._fields())
            return process
        return None

    def _rests(self, seconds: float) -> bool:
        """Wait; False when the model is not wanted any more."""
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        while not self._closing and (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1000 + 1):
                self._woken.recv(4096)
        return not self._closing

    def _count(self, how: str) -> None:
        if self._lost is not None:
            self._lost(self._source, how)

    def _offer(self, lines: Lines | None, trouble: str = "") -> None:
        with self._changing:
            self._lines, self.trouble = lines, trouble

    def _watch(self, process: ModelProcess, lines: Lines) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(process, select.POLLIN)
        watched: dict[int, Any] = {}
        while True:
            for line in lines.left:
                if line.fileno() not in watched:
                    watched[line.fileno()] = line
                    poll.register(line, select.POLLIN)
            due = min((each.asked + self._patience for each in watched.values()), default=None)
            ready = dict(poll.poll(None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1))
            if self._closing or (process.fileno() in ready and not process.listen()):
                return
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            for descriptor in ready.keys() & watched.keys():
                poll.unregister(descriptor)
                lines.answered(watched.pop(descriptor))
            if due is not None and watched and time.monotonic() >= due:
                self._kill_overdue(process, [each.asked for each in watched.values()])

    def _kill_overdue(self, process: ModelProcess, asked: list[float]) -> None:
        if any(time.monotonic() - each >= self._patience for each in asked):
            process.kill(f"it hung: no answer to a call within {self._patience:g} s")

    def _told(self, how: str) -> str:
        return f"The process of model {self._source.name!r} ended ({how}) and is started again"

    def _fields(self) -> dict[str, str]:
        return {"model": self._source.name, "version": self._source.version}


def _shape(binding: Binding) -> object:
    described = binding.description
    return (described.task_type, list(described.labels), list(described.inputs), list(described.outputs))
