"""The main function of a model process: load the model, and serve its calls."""

import ctypes
import gc
import logging
import resource
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from app.core.engine.cancellation import cancellation_scope
from app.core.engine.error_text import error_text
from app.core.engine.models.servable import Servable
from app.core.engine.remote import Binding, Failure
from app.core.server.process_setup import configure_process, freeze_garbage
from app.core.settings.model import ModelError
from app.plugins.isolation.settings import IsolationSettings
from tasks.inference.error import ErrorKind, InferenceError, model_failed

_logger = logging.getLogger(__name__)

# From Linux's prctl.h.
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15

_HEALTH_CHECK_SECONDS = 1.0


def run_worker(name: str, sockets: Sequence[int]) -> Servable | None:
    """Load the model, serve calls until the server closes its end of the first socket, and return the model.

    That one receives the job, and sends the outcome and log records; each of the others carries one call at a time.
    The process, which lists show as `name`, ends whenever the server ends, and ignores signals: the server stops its
    models after it has drained.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        # Child processes would inherit SIG_IGN, but they do not inherit a handler.
        signal.signal(number, lambda _number, _frame: None)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(_PR_SET_NAME, name.encode()[:15])
    # When memory runs out, the kernel kills this process and not the server, which restarts it.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    control, *calls = map(Connection, sockets)
    job, source, log_level = control.recv()
    send_lock = threading.Lock()

    def report(message: object) -> None:
        with send_lock:
            control.send(message)

    handler = _ServerLogHandler()
    handler.report = report
    logging.basicConfig(handlers=[handler], level=log_level, force=True)
    gc.disable()
    configure_process()
    if (max_bytes := source.settings.of(IsolationSettings).memory_limit_bytes) is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))
    try:
        outcome = job(source)
        report(Binding.of(outcome) if isinstance(outcome, Servable) else outcome)
    except BaseException as error:  # noqa: BLE001  the server must receive every error
        cause = f"{source.folder} cannot run in its own process: {error_text(error)}"
        return report(error if isinstance(error, ModelError) else ModelError(cause))
    if not calls:
        return None
    freeze_garbage()
    for call in calls:
        threading.Thread(target=CallServer(call, outcome).serve, daemon=True).start()
    while not control.poll(_HEALTH_CHECK_SECONDS):
        if outcome.health is not None and (reason := outcome.health.unavailable_reason):
            report(ModelError(reason))  # the server kills this process
    return outcome


class _ServerLogHandler(logging.Handler):
    """Sends log records to the server as built-in types, because it lacks the types of the model's modules."""

    report: Callable[[object], None]

    def emit(self, record: logging.LogRecord) -> None:
        kept = (int, float, type(None))
        fields = {name: value if type(value) in kept else str(value) for name, value in vars(record).items()}
        if record.exc_info:
            # The server's own field for a traceback.
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        with suppress(OSError):  # the server may have ended
            self.report({**fields, "msg": record.getMessage(), "args": None, "exc_info": None, "exc_text": None})


class CallServer:
    """Serves the calls that arrive on one connection, one at a time, in its own thread."""

    def __init__(self, connection: Connection, servable: Servable) -> None:
        self._connection, self._servable = connection, servable
        self._chunks: Generator[Any] = (chunk for chunk in ())

    @property
    def cancellation(self) -> InferenceError | None:
        """Return an error once no client waits for the call: the server has sent None, or has disconnected."""
        return InferenceError(ErrorKind.CANCELLED, "The request was cancelled") if self._connection.poll() else None

    def serve(self) -> None:
        """Serve calls until the server closes its end."""
        with self._connection, suppress(EOFError, OSError):
            while True:
                self._serve_next()

    def _serve_next(self) -> None:
        """Serve the next call. Its own frame releases the inputs before the thread waits again."""
        # None ends a stream, or came after the outcome of its call.
        kind, inputs = self._connection.recv() or ("close", None)
        try:
            with cancellation_scope(self):
                message = ForkingPickler.dumps(self._run(kind, inputs))
        except BaseException as error:  # `SystemExit` from model code must not end this thread
            if not isinstance(error, InferenceError):
                error = model_failed(f"The model failed: {error_text(error)}")
            if error.kind is ErrorKind.MODEL_FAILED:
                _logger.exception("isolated model failed")
            message = ForkingPickler.dumps(Failure.from_error(error))
        if kind != "close":
            self._connection.send_bytes(message)

    def _run(self, kind: str, inputs: Any) -> Any:
        model: Any = self._servable.model
        if kind == "predict":
            return list(model(inputs))
        if kind == "explain":
            return list(model.explain(inputs))
        if kind == "close":
            return self._chunks.close()
        if kind == "stream":
            self._chunks = model.stream(inputs)
        return next(self._chunks, None)
