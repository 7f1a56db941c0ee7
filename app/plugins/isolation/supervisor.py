"""Keep a model process running: start it, watch it, restart it, and send the calls of a model to it."""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from app.core.engine.cancellation import current_token, raise_if_cancelled
from app.core.engine.error_text import redact_paths
from app.core.engine.models.memory import resident_bytes
from app.core.engine.models.servable import Servable
from app.core.engine.remote import Binding, Failure
from app.core.engine.scheduling.thread_pool import release_worker
from app.core.runtimes.closing import close_at_exit
from app.core.runtimes.waiting import WaitingRequests
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ServerSettings
from app.plugins.isolation.process import ModelProcess
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import TextChunk

_GRACE_SECONDS = 5.0
"""Extra time for runtimes that enforce the timeout themselves, such as the Python runtime."""

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 1.0, 60.0
_HEALTHY_SECONDS = 60.0
"""A process that runs this long resets the restart delay."""

_RELEASE_WORKER_SECONDS = 0.5
"""A call that takes longer releases its worker, because it may hang."""

_POLL_SECONDS = 0.2
_logger = logging.getLogger(__name__)


class ProcessRunner:
    """Runs a model of any task in another process, which loads it with `load`, a function of a module.

    The process is restarted whenever it ends. It ends after this object is dropped and the last request has finished,
    or when the server ends. Raise ModelError if `load` raises, or the process ends meanwhile.

    Attributes:
        binding: the servable without its model.
        stream: the method of a `StreamingModel`; None if the model does not stream.
        explain: the method of a `SelfExplainingModel`; None if the model has none.
    """

    def __init__(self, source: ModelSource, load: Callable[[ModelSource], Servable]) -> None:
        self._supervisor = supervisor = Supervisor(source, load)
        close_at_exit(supervisor)
        self.binding = supervisor.binding.result()
        self.stream = supervisor.stream if self.binding.streams else None
        self.explain = partial(supervisor.call, "explain") if self.binding.explains else None
        # The registration and the requests in flight keep this object alive.
        weakref.finalize(self, supervisor.close).atexit = False

    @property
    def unavailable_reason(self) -> str:
        """Return why the model cannot answer now, or an empty string."""
        return self._supervisor.unavailable_reason

    @property
    def resident_bytes(self) -> int | None:
        """Return the resident memory of the running process in bytes, None while none runs."""
        with suppress(ProcessLookupError):
            return None if (process := self._supervisor.process) is None else resident_bytes(process.pid)
        return None

    def __call__(self, items: Sequence[Any], /) -> Sequence[Any]:
        return self._supervisor.call("predict", items)


class Supervisor:
    """A thread that runs until the model is unloaded. The process loads the model with `load`.

    Attributes:
        binding: the servable without its model, after the first load; raises ModelError if that fails.
        process: the running process, None while none runs.
        unavailable_reason: why the model cannot answer now, or an empty string.
    """

    def __init__(self, source: ModelSource, load: Callable[[ModelSource], Servable]) -> None:
        self._source, self._load = source, load
        self._fields = {"model": source.name, "version": source.version}
        self._seconds = source.settings.timeout_seconds
        # Twice the default number of workers, because some calls hang or wait.
        self._max_calls = max(4, 2 * ServerSettings().worker_count)
        self._waiting = WaitingRequests(self._max_calls, self._seconds)
        self._closing = False
        self.binding: Future[Binding] = Future()
        self.process: ModelProcess | None = None
        self.unavailable_reason = ""
        self._thread = threading.Thread(target=self._run, name=f"process of {source.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the process in the background."""
        # The garbage collector may call this at any point, so it must not take a lock.
        self._closing = True

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the process to end; the system kills it when this process ends."""
        self._thread.join(seconds)

    def call(self, kind: str, inputs: Sequence[Any], /) -> Any:
        """Make one call and return its outcome. Raise InferenceError as `exchange`, or if the model fails."""
        with self.exchange() as send:
            return send(kind, list(inputs))

    def stream(self, inputs: Sequence[Any], /) -> Generator[TextChunk]:
        """Yield the chunks of every answer in the order of the inputs, one at a time on demand."""
        with self.exchange() as send:
            chunk = send("stream", list(inputs))
            while chunk is not None:
                yield chunk
                chunk = send("next", None)

    @contextmanager
    def exchange(self) -> Generator[Callable[[str, Any], Any]]:
        """Reserve a connection to the process. Yield the function that sends a call, and returns its outcome.

        Kinds are ``predict``, ``explain``, and ``stream`` and ``next`` for chunks, which None ends. Raise OVERLOADED if
        too many requests wait; MODEL_NOT_READY if no process runs, or it ends; CANCELLED or DEADLINE_EXCEEDED if the
        request ends, or the call took too long.
        """
        process = self.process
        if process is None:
            reason = redact_paths(self.unavailable_reason, self._source) or "The model was unloaded"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, reason)
        with self._waiting.changed:
            self._waiting.wait(lambda: self.process is not process or bool(process.free), keeps_worker=True)
            if self.process is not process:
                raise self._ended_error(process)
            connection = process.free.pop()
        try:
            yield partial(self._exchange, process, connection)
        except GeneratorExit:  # the reader of a stream has left
            with suppress(OSError):
                connection.send(None)
            raise
        finally:
            with self._waiting.changed:
                process.free.append(connection)
                self._waiting.changed.notify()

    def _exchange(self, process: ModelProcess, connection: Connection, kind: str, inputs: Any) -> Any:
        try:
            connection.send((kind, inputs))
            self._wait(process, connection)
            outcome = connection.recv()
        except InferenceError:
            raise
        except Exception:  # noqa: BLE001  a process with corrupted memory may send anything
            raise self._ended_error(process) from None
        if isinstance(outcome, Failure):
            raise outcome.to_error()
        return outcome

    def _wait(self, process: ModelProcess, connection: Connection) -> None:
        """Wait for the outcome of a call, also of a request that has ended. Kill the process if it takes too long."""
        if connection.poll(_RELEASE_WORKER_SECONDS):
            return
        seconds = self._seconds + _GRACE_SECONDS
        deadline = time.monotonic() + seconds - _RELEASE_WORKER_SECONDS
        with release_worker():
            while not connection.poll(_POLL_SECONDS):
                if (token := current_token()) is not None and token.cancellation is not None:
                    connection.send(None)  # the model may stop early
                if time.monotonic() >= deadline:
                    process.kill(f"it hung: no answer to a call within {seconds:g} s")
                    raise_if_cancelled()
                    raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, f"The model did not answer within {seconds:g} s")

    def _run(self) -> None:
        delay, fields = _MIN_DELAY_SECONDS, dict[str, object]()
        while not self._closing:
            started = time.monotonic()
            try:
                process = self._start()
            except BaseException as error:  # noqa: BLE001  `binding` raises it in the loading thread
                if not self.binding.done():
                    self.binding.set_exception(error)
                    return
                self.unavailable_reason = f"The model could not be restarted; the server keeps trying: {error}"
                event, fields = "model process failed to start", {"reason": str(error)}
            else:
                event, fields = "model process ended", self._serve(process)
            if self._closing:
                return
            delay = _MIN_DELAY_SECONDS if time.monotonic() - started >= _HEALTHY_SECONDS else delay
            _logger.error(event, extra={**self._fields, **fields, "again_in_seconds": delay})
            due = time.monotonic() + delay
            while not self._closing and time.monotonic() < due:
                time.sleep(_POLL_SECONDS)
            delay = min(2 * delay, _MAX_DELAY_SECONDS)

    def _start(self) -> ModelProcess:
        """Start a process and wait until it has loaded the model. Raise ModelError if it fails."""
        process = ModelProcess(self._source, self._load, self._max_calls)
        try:
            binding: Binding = process.outcome()
            if self.binding.done() and binding.interface != self.binding.result().interface:
                raise ModelError("its files have changed since it was loaded; reload it")
        except BaseException:
            process.close("it was not loaded")
            raise
        self._publish(process, "")
        if self.binding.done():
            _logger.info("model process started again", extra=self._fields)
        else:
            self.binding.set_result(binding)
        return process

    def _serve(self, process: ModelProcess) -> dict[str, object]:
        """Let calls use a process until it ends, or the model is unloaded. Return how it ended, for the log."""
        reason = ""
        try:
            while not self._closing:
                if process.control.poll(_POLL_SECONDS) and (message := process.next_message()) is not None:
                    process.kill(f"it hung: {message}")
        except Exception:  # noqa: BLE001  a process with corrupted memory may send anything
            reason = process.wait_ended()
        calls = self._max_calls - len(process.free)
        self._publish(None, self._ended_message(reason) if reason else "")
        # A graceful stop would wait for the remaining calls, which are cancelled.
        process.close("it was still in a call when it had to stop" if calls and not reason else "")
        return {"how": reason, "calls": calls}

    def _publish(self, process: ModelProcess | None, reason: str) -> None:
        """Let calls use a process, or tell them why there is none."""
        with self._waiting.changed:
            self.process, self.unavailable_reason = process, reason
            self._waiting.changed.notify_all()

    def _ended_error(self, process: ModelProcess) -> InferenceError:
        """Return the error for a call whose process has ended or is dead."""
        message = self._ended_message(process.wait_ended(1.0))
        if self.process is process:
            self.unavailable_reason = message
        return InferenceError(ErrorKind.MODEL_NOT_READY, message)

    def _ended_message(self, reason: str) -> str:
        return f"The process of model {self._source.name!r} ended ({reason}) and is being restarted"
