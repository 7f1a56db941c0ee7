"""Start a model process, read its messages, and stop it."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, cast

from app.core.engine.models.memory import resident_bytes
from app.core.plugin_loading import VARIABLE
from app.core.settings.model import ModelError, ModelSource
from app.plugins.isolation.messages import InvalidMessageError, receive, send
from app.plugins.isolation.remote import ModelUnavailable
from tasks.inference.error import ErrorKind, InferenceError

_PROGRAM = Path(__file__).with_name("model_process.py")
_PACKAGE = __name__.rpartition(".")[0]

SOCKET_TIMEOUT_SECONDS = 30.0
"""A process that neither reads nor writes a message for this long is considered dead."""

_STOP_SECONDS = 5.0
"""Time that a model has to close after a stop request, before its process is killed."""


class ModelProcess:
    """A process that runs one job.

    Only the creating thread may use it, except for `open_channel`, `resident_bytes` and `kill`. Linux kills the process
    when that thread ends. The process calls `job`, a module-level function, with `source`.
    """

    def __init__(self, source: ModelSource, job: Callable[[ModelSource], object]) -> None:
        self.source = source
        self.kill_reason = ""
        self._control, process_socket = socket.socketpair()
        self._control.settimeout(SOCKET_TIMEOUT_SECONDS)
        name = f"{source.name}/{source.version}"
        options = ["-P", "-u", "-X", "faulthandler"]
        with process_socket:
            arguments = [name, str(process_socket.fileno()), _PACKAGE, json.dumps(sys.path)]
            # A new session keeps Ctrl-C from the model: the server stops its models after it has drained.
            self._popen = subprocess.Popen(  # noqa: S603  this interpreter runs a file of this package
                [sys.executable, *options, str(_PROGRAM), *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=[process_socket.fileno()],
                env=_environment(),
                start_new_session=True,
            )
        with suppress(OSError):  # `outcome` reports a process that has ended already
            send(self._control, (job, source, logging.getLogger().getEffectiveLevel()))

    @property
    def resident_bytes(self) -> int | None:
        """Return the resident memory in bytes, None if the process has ended."""
        try:
            return resident_bytes(self._popen.pid)
        except ProcessLookupError:
            return None

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a message arrives or the process ends."""
        return self._control.fileno()

    def outcome(self, seconds: float, is_wanted: Callable[[], bool] = lambda: True) -> Any:
        """Wait up to `seconds` for the result of the job, while `is_wanted`.

        Raise ModelError if the job fails or times out, the process ends, or the result is no longer wanted.
        """
        deadline = time.monotonic() + seconds
        while True:
            if not wait([self._control], 0.25):
                if not is_wanted():
                    raise ModelError(f"{self.source.folder}: its loading was cancelled")
                if time.monotonic() >= deadline:
                    raise ModelError(f"{self.source.folder}: its process was not ready within {seconds:g} s")
                continue
            try:
                message = receive(self._control)[0]
            except (EOFError, OSError):
                message = f"{self.source.folder}: its process ended while it was loaded ({self.wait_ended()})"
                raise ModelError(message) from None
            if not isinstance(message, dict):
                break
            _log(cast("dict[str, Any]", message))
        if isinstance(message, ModelUnavailable):
            raise ModelError(message.reason)
        return message

    def handle_message(self) -> bool:
        """Handle one message: log it, or kill a hung process. Return False once the process has ended."""
        try:
            message: Any = receive(self._control)[0]
        except (InvalidMessageError, TimeoutError):
            self.kill("it sent a message that cannot be read")
            return False
        except (EOFError, OSError):
            return False
        if isinstance(message, ModelUnavailable):
            self.kill(f"it hung: {message.reason}")
            return False
        _log(message)
        return True

    def open_channel(self) -> socket.socket:
        """Open a new channel.

        Raise OSError if the process has ended. Raise OVERLOADED if the system has no more sockets.
        """
        try:
            server_socket, process_socket = socket.socketpair()
        except OSError as error:
            message = f"No channel to the model's process can be opened: {error.strerror}"
            raise InferenceError(ErrorKind.OVERLOADED, message) from None
        try:
            with process_socket:
                socket.send_fds(self._control, [b"l"], [process_socket.fileno()])
        except BaseException:
            server_socket.close()
            raise
        return server_socket

    def kill(self, reason: str) -> None:
        """Kill the process, and record the first `reason`."""
        self.kill_reason = self.kill_reason or reason
        self._popen.kill()

    def wait_ended(self, seconds: float = _STOP_SECONDS) -> str:
        """Wait for the process to end, kill it after `seconds`, and return why it ended."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill("it did not end")
            self._popen.wait()
        status = self._popen.returncode
        if self.kill_reason:
            return self.kill_reason
        if status >= 0:
            return f"exit status {status}"
        # Real-time signals have no names.
        name = signal.Signals(-status).name if -status in set(signal.Signals) else ""
        return f"signal {-status}, {name}" if name else f"signal {-status}"

    def close(self) -> None:
        """Stop the process and all processes that it has started, and close the control socket."""
        # The process closes its model first.
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        self.wait_ended()
        # The process group contains only child processes of the model.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._control.close()


def run_in_process(source: ModelSource, job: Callable[[ModelSource], Any]) -> Any:
    """Return the result of `job` for `source`, run in a process that ends afterwards.

    Raise ModelError if anything fails.
    """
    process = ModelProcess(source, job)
    try:
        return process.outcome(source.settings.load_timeout_seconds)
    finally:
        process.kill("its job was done")
        process.close()


def _environment() -> dict[str, str]:
    """Return the environment without the server's settings, which include database passwords and webhook URLs.

    The names of third-party plugins stay: the model may need them.
    """
    own = "CHARIOTEER_"
    return {name: value for name, value in os.environ.items() if name == VARIABLE or not name.startswith(own)}


def _log(fields: dict[str, Any]) -> None:
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)
