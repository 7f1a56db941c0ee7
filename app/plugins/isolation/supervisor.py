"""Keep a model process running: start it, watch it, and restart it."""

import logging
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from app.core.engine.cancellation import current_token, raise_if_cancelled
from app.core.engine.error_text import redact_paths
from app.core.engine.models.memory import resident_bytes
from app.core.engine.remote import Binding, Failure
from app.core.engine.scheduling.thread_pool import release_worker
from app.core.runtimes.waiting import WaitingRequests
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ServerSettings
from app.plugins.isolation.process import ModelProcess
from tasks.inference.error import ErrorKind, InferenceError

Exchange = Callable[[str, Any], Any]
"""Sends a call with its inputs, and returns the outcome. Kinds are ``predict``; ``stream``, ``next`` and ``close`` for
chunks, whose end is None; ``downscale``; and ``explain``."""

_GRACE_SECONDS = 5.0
"""Extra time for runtimes that enforce the timeout themselves, such as the Python runtime."""

_MAX_DELAY_SECONDS = 60.0
_HEALTHY_SECONDS = 60.0
"""A process that runs this long resets the restart delay."""

_RELEASE_WORKER_SECONDS = 0.5
"""A call that takes longer releases its worker, because it may hang."""

_POLL_SECONDS = 0.2
_logger = logging.getLogger(__name__)


class Supervisor:
    """A thread that runs until the model is unloaded. The process loads the model with `job`."""

    def __init__(self, source: ModelSource, job: Callable[[ModelSource], object]) -> None:
        self._source, self._job = source, job
        self._fields = {"model": source.name, "version": source.version}
        self._seconds = source.settings.timeout_seconds
        # Twice the default number of workers, because some calls hang or wait.
        self._max_calls = max(4, 2 * ServerSettings().worker_count)
        self._waiting = WaitingRequests(self._max_calls, self._seconds)
        self._process: ModelProcess | None = None
        self._binding: Future[Binding] = Future()
        self._closing = False
        self.unavailable_reason = ""
        self.thread = threading.Thread(target=self._run, name=f"process of {source.name}", daemon=True)
        self.thread.start()

    def binding(self) -> Binding:
        """Wait for the first load, and return the servable without its model. Raise ModelError if it fails."""
        return self._binding.result()

    @property
    def resident_bytes(self) -> int | None:
        """Return the resident memory of the running process in bytes, None while none runs."""
        with suppress(ProcessLookupError):
            return None if (process := self._process) is None else resident_bytes(process.pid)
        return None

    def close(self) -> None:
        """Stop the process in the background."""
        # The garbage collector may call this at any point, so it must not take a lock.
        self._closing = True

    def call(self, kind: str, inputs: Any) -> Any:
        """Make one call and return its outcome. Raise InferenceError as `exchange`, or if the model fails."""
        with self.exchange() as send:
            return send(kind, inputs)

    @contextmanager
    def exchange(self) -> Generator[Exchange]:
        """Reserve a connection to the process for a call, or for those of a stream.

        Raise MODEL_NOT_READY while no process runs, or if it ends; OVERLOADED if too many requests wait; CANCELLED or
        DEADLINE_EXCEEDED if the request ends, or the process was killed because the call took too long.
        """
        process = self._process
        if process is None:
            reason = redact_paths(self.unavailable_reason, self._source) or "The model was unloaded"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, reason)
        with self._waiting.changed:
            self._waiting.wait(lambda: self._process is not process or bool(process.free), keeps_worker=True)
            if self._process is not process:
                raise self._ended_error(process)
            connection = process.free.pop()
        try:
            yield partial(self._exchange, process, connection)
        finally:
            with self._waiting.changed:
                if self._process is process:
                    process.free.append(connection)
                else:
                    connection.close()
                self._waiting.changed.notify()

    def _exchange(self, process: ModelProcess, connection: Connection, kind: str, inputs: Any) -> Any:
        message = ForkingPickler.dumps((kind, inputs))
        try:
            connection.send_bytes(message)
            # Drop the copy of the inputs while the model runs.
            del message
            self._wait(process, connection)
            outcome = connection.recv()
        except (EOFError, OSError):
            raise self._ended_error(process) from None
        except InferenceError:
            raise
        except Exception:  # noqa: BLE001  a process with corrupted memory may send anything
            process.kill("its answer cannot be read")
            raise self._ended_error(process) from None
        if isinstance(outcome, Failure):
            raise outcome.to_error()
        return outcome

    def _wait(self, process: ModelProcess, connection: Connection) -> None:
        """Wait for the outcome of a call, also of a request that has ended. Kill the process if it takes too long."""
        if connection.poll(_RELEASE_WORKER_SECONDS):
            return
        seconds, is_cancelled = self._seconds + _GRACE_SECONDS, False
        deadline = time.monotonic() + seconds - _RELEASE_WORKER_SECONDS
        with release_worker():
            while not connection.poll(_POLL_SECONDS):
                token = current_token()
                if not is_cancelled and token is not None and token.cancellation is not None:
                    # The model may stop early.
                    connection.send(None)
                    is_cancelled = True
                if time.monotonic() >= deadline:
                    process.kill(f"it hung: no answer to a call within {seconds:g} s")
                    raise_if_cancelled()
                    raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, f"The model did not answer within {seconds:g} s")

    def _run(self) -> None:
        try:
            process, first = self._start()
        except BaseException as error:  # noqa: BLE001  `binding` raises it in the loading thread
            self._binding.set_exception(error)
            return
        delay = 1.0
        while process is not None:
            self._publish(process, "")
            if not self._binding.done():
                self._binding.set_result(first)
            started = time.monotonic()
            reason = self._watch(process)
            calls = self._max_calls - len(process.free)
            self._publish(None, self._ended_message(reason) if reason else "")
            if calls and not reason:
                # The remaining calls are cancelled, and a graceful stop would wait for them.
                process.kill("it was still in a call when it had to stop")
            process.close()
            if reason:
                delay = 1.0 if time.monotonic() - started >= _HEALTHY_SECONDS else delay
                fields = {**self._fields, "how": reason, "calls": calls, "again_in_seconds": delay}
                _logger.error("model process ended", extra=fields)
            process, delay = self._restart(first, delay)

    def _start(self) -> tuple[ModelProcess, Binding]:
        try:
            process = ModelProcess(self._source, self._job, self._max_calls)
        except OSError as error:
            raise ModelError(f"{self._source.folder}: its process cannot be started: {error}") from error
        try:
            return process, process.outcome()
        except BaseException:
            process.kill("it was not loaded")
            process.close()
            raise

    def _watch(self, process: ModelProcess) -> str:
        """Wait until the process ends, and return why, or until the model is unloaded."""
        try:
            while not self._closing:
                if process.control.poll(_POLL_SECONDS) and (message := process.next_message()) is not None:
                    process.kill(f"it hung: {message.reason}")
            return ""
        except (EOFError, OSError):
            return process.wait_ended()
        except Exception:  # noqa: BLE001  a process with corrupted memory may send anything
            process.kill("it sent a message that cannot be read")
            return process.wait_ended()

    def _restart(self, first: Binding, delay: float) -> tuple[ModelProcess | None, float]:
        """Retry until a process is ready; return it, None once the model is unloaded, and the next delay in seconds."""
        while not self._closing:
            due = time.monotonic() + delay
            while not self._closing and time.monotonic() < due:
                time.sleep(_POLL_SECONDS)
            if self._closing:
                break
            delay = min(2 * delay, _MAX_DELAY_SECONDS)
            try:
                process, binding = self._start()
                if binding.interface == first.interface:
                    _logger.info("model process started again", extra=self._fields)
                    return process, delay
                process.close()
                raise ModelError("its files have changed since it was loaded; reload it")
            except ModelError as error:
                self.unavailable_reason = f"The model could not be restarted; the server keeps trying: {error}"
                fields = {**self._fields, "reason": str(error), "again_in_seconds": delay}
                _logger.error("model process failed to start", extra=fields)
        return None, delay

    def _publish(self, process: ModelProcess | None, reason: str) -> None:
        """Let calls use a process, or tell them why there is none."""
        with self._waiting.changed:
            self._process, self.unavailable_reason = process, reason
            self._waiting.changed.notify_all()

    def _ended_error(self, process: ModelProcess) -> InferenceError:
        """Return the error for a call whose process has ended or is dead."""
        message = self._ended_message(process.wait_ended(1.0))
        if self._process is process:
            self.unavailable_reason = message
        return InferenceError(ErrorKind.MODEL_NOT_READY, message)

    def _ended_message(self, reason: str) -> str:
        return f"The process of model {self._source.name!r} ended ({reason}) and is being restarted"
