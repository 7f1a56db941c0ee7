"""One process of a model: how it is started, what it tells, and how it ends."""

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from app.runtimes.isolated.messages import NoMessageError, NotLoaded, Order, Stuck, receive, send
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("ModelProcess", "in_process")

_PROGRAM = Path(__file__).with_name("model_process.py")

_SECONDS_FOR_BYTES = 30.0
"""A process that was stopped amid a message is not waited for any longer."""

_SECONDS_TO_END = 5.0
"""A process that is told to end, and does not, is killed then. Models have so long to close, as without a process."""


class ModelProcess:
    """A process that was told to do a job. To be used by the thread that made it, but for `open_line` and `kill`.

    Linux ends the process when that thread ends.

    Args:
        source: the model.
        job: done with the source in the process; a function of a module.
    """

    def __init__(self, source: ModelSource, job: Callable[[ModelSource], object]) -> None:
        self.source = source
        self.killed_for = ""
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_SECONDS_FOR_BYTES)
        name = f"{source.name}/{source.version}"
        options = ["-P", "-u", "-X", "faulthandler"]
        with theirs:
            command = [sys.executable, *options, str(_PROGRAM), name, str(theirs.fileno())]
            # A session of its own: Ctrl-C is for the server, which ends its models when it has drained.
            self._popen = subprocess.Popen(  # noqa: S603  this interpreter, and a file beside this one
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                start_new_session=True,
            )
        path = json.dumps(sys.path).encode()
        order = Order(
            job=job,
            source=source,
            memory_limit=source.settings.memory_limit_bytes,
            log_level=logging.getLogger().getEffectiveLevel(),
        )
        with suppress(OSError):  # it has ended already, which `outcome` tells
            self._control.sendall(len(path).to_bytes(8, "little") + path)
            send(self._control, order)

    def fileno(self) -> int:
        """Readable when it has something to tell, or has ended."""
        return self._control.fileno()

    def outcome(self, seconds: float, wanted: Callable[[], bool] = lambda: True) -> Any:
        """What came of its job.

        Args:
            seconds: it may take so long.
            wanted: asked now and then whether it is still waited for.

        Raises:
            ModelError: with a sentence for the model's owner.
        """
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while True:
            if not poll.poll(250):
                if not wanted():
                    raise ModelError(f"{self.source.folder}: nobody waits for it to be loaded")
                if time.monotonic() >= until:
                    raise ModelError(f"{self.source.folder}: its process was not ready within {seconds:g} s")
                continue
            try:
                message = receive(self._control)[0]
            except (EOFError, OSError):
                message = f"{self.source.folder}: its process ended while it was loaded ({self.ended()})"
                raise ModelError(message) from None
            if not isinstance(message, dict):
                break
            _log(cast("dict[str, Any]", message))
        if isinstance(message, NotLoaded):
            raise ModelError(message.reason)
        return message

    def listen(self) -> bool:
        """Take what it tells, of itself or for the log, when there is something. False once it has ended."""
        try:
            message: Any = receive(self._control)[0]
        except (NoMessageError, TimeoutError):
            self.kill("it told what cannot be read")
            return False
        except (EOFError, OSError):
            return False
        if isinstance(message, Stuck):
            self.kill(f"it hung: {message.reason}")
        else:
            _log(message)
        return True

    def open_line(self) -> socket.socket:
        """A new line to it.

        Raises:
            OSError: when it has ended.
            InferenceError: OVERLOADED when the system gives no more.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            message = f"There is no line to the model's process to be had: {error.strerror}"
            raise InferenceError(ErrorKind.OVERLOADED, message) from None
        try:
            with theirs:
                descriptor = array("i", [theirs.fileno()])
                self._control.sendmsg([b"l"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)])
        except BaseException:
            ours.close()
            raise
        return ours

    def kill(self, reason: str) -> None:
        """End it at once, for `reason`."""
        self.killed_for = self.killed_for or reason
        self._popen.kill()

    def let_end(self) -> None:
        """Tell it to end. It closes what has to be closed."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def ended(self, seconds: float = _SECONDS_TO_END) -> str:
        """How it has ended, in a few words. One that does not end in time is killed."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill("it did not end")
            self._popen.wait()
        status = self._popen.returncode
        if self.killed_for:
            return self.killed_for
        if status >= 0:
            return f"exit status {status}"
        # Real-time signals have no names.
        name = signal.Signals(-status).name if -status in set(signal.Signals) else ""
        return f"signal {-status}, {name}" if name else f"signal {-status}"

    def close(self) -> None:
        """End it if it has not, and what it has started and left, and let go of it."""
        self.let_end()
        self.ended()
        # Nothing but them is in the session of its own, if there is one any more.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._control.close()


def in_process(source: ModelSource, job: Callable[[ModelSource], Any]) -> Any:
    """What `job` gives for `source`, done in a process that ends with it.

    Raises:
        ModelError: whatever goes wrong.
    """
    process = ModelProcess(source, job)
    try:
        return process.outcome(source.settings.load_timeout_seconds)
    finally:
        process.kill("it was done with")
        process.close()


def _environment() -> dict[str, str]:
    """This process's, without what the server alone is told by it: passwords of databases, addresses of webhooks."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CHARIOTEER_")}


def _log(fields: dict[str, Any]) -> None:
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)
