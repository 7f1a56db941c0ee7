"""Start a model process, read its messages, and stop it.

The server and the process exchange pickled messages over sockets of `multiprocessing`. Both ends belong to this server,
so messages are trusted.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import Any, cast

from app.core.plugin_loading import VARIABLE
from app.core.settings.model import ModelError, ModelSource

_PROGRAM = """
import importlib, json, sys
name, package, path, *sockets = sys.argv[1:]
sys.path[:] = json.loads(path)
import charioteer
if not package.startswith("charioteer."):
    charioteer.claim_names()
served = importlib.import_module(package + ".worker").run_worker(name, list(map(int, sockets)))
"""
"""The code of the process, which gets the server's `sys.path`: other packages named `app` may come first in it."""

_STOP_SECONDS = 5.0
"""Time that a model has to close after a stop request, before its process is killed."""


class ModelProcess:
    """A process that calls `job`, a function of a module, with `source`, and then serves up to `calls` calls at once.

    Linux kills it when the thread that has created it ends. Raise ModelError if it cannot be started.

    Attributes:
        free: the connections that carry no call.
    """

    def __init__(self, source: ModelSource, job: Callable[[ModelSource], object], calls: int = 0) -> None:
        self.source, self._end_reason = source, ""
        pairs = [Pipe() for _ in range(calls + 1)]
        self.control, *self.free = (ours for ours, _ in pairs)
        sockets = [theirs.fileno() for _, theirs in pairs]
        package, path = __name__.rpartition(".")[0], json.dumps(sys.path)
        arguments = [f"{source.name}/{source.version}", package, path, *map(str, sockets)]
        # The process gets no settings of the server, which include passwords. The model may need the names of plugins.
        environment = {
            name: value for name, value in os.environ.items() if name == VARIABLE or not name.startswith("CHARIOTEER_")
        }
        try:
            # A new session keeps Ctrl-C from the model: the server stops its models after it has drained.
            self._popen = subprocess.Popen(  # noqa: S603  this interpreter runs the code above
                [sys.executable, "-P", "-u", "-X", "faulthandler", "-c", _PROGRAM, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=sockets,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ModelError(f"{source.folder}: its process cannot be started: {error}") from error
        finally:
            for _, theirs in pairs:
                theirs.close()
        self.pid = self._popen.pid
        with suppress(OSError):  # `outcome` reports a process that has ended already
            self.control.send((job, source, logging.getLogger().getEffectiveLevel()))

    def outcome(self) -> Any:
        """Wait for the result of the job. Raise ModelError if it fails or times out, or the process ends."""
        folder, seconds = self.source.folder, self.source.settings.load_timeout_seconds
        deadline = time.monotonic() + seconds
        try:
            while self.control.poll(max(0.0, deadline - time.monotonic())):
                if isinstance(message := self.next_message(), ModelError):
                    raise message
                if message is not None:
                    return message
        except (EOFError, OSError):
            raise ModelError(f"{folder}: its process ended while it was loaded ({self.wait_ended()})") from None
        raise ModelError(f"{folder}: its process was not ready within {seconds:g} s")

    def next_message(self) -> Any:
        """Return the next message, None if it was a record for the log. Raise EOFError or OSError at the end."""
        message: Any = self.control.recv()
        if not isinstance(message, dict):
            return message
        record = logging.makeLogRecord(cast("dict[str, Any]", message))
        logging.getLogger(record.name).handle(record)
        return None

    def kill(self, reason: str) -> None:
        """Kill the process, and record the first `reason`."""
        self._end_reason = self._end_reason or reason
        self._popen.kill()

    def wait_ended(self, seconds: float = _STOP_SECONDS) -> str:
        """Wait for the process to end, kill it after `seconds`, and return why it ended."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill("it did not end")
            self._popen.wait()
        status = self._popen.returncode
        if self._end_reason or status >= 0:
            return self._end_reason or f"exit status {status}"
        with suppress(ValueError):  # real-time signals have no names
            return f"signal {-status}, {signal.Signals(-status).name}"
        return f"signal {-status}"

    def close(self, reason: str = "") -> None:
        """Stop the process and all processes that it has started; kill it for a `reason`."""
        if reason:
            self.kill(reason)
        for connection in (self.control, *self.free):
            connection.close()
        self.wait_ended()
        with suppress(ProcessLookupError, PermissionError):  # the group has only children of the process
            os.killpg(self.pid, signal.SIGKILL)
