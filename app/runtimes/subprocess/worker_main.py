"""The main function of a model process: load the model, and serve each channel that the server opens."""

import ctypes
import errno
import logging
import logging.handlers
import os
import pickle
import resource
import select
import signal
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, cast

import msgspec

from app.engine.error_text import error_text
from app.engine.models.servable import HealthReporting, Servable
from app.runtimes.remote import Binding, LoadFailure
from app.runtimes.subprocess.call_server import CallServer
from app.runtimes.subprocess.messages import Job, ModelUnavailable, receive, send
from app.settings.model import ModelError

# From Linux's prctl.h.
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15

_HEALTH_CHECK_SECONDS = 1.0
"""Interval between checks whether the model can still answer."""

_OOM_SCORE = "500"
"""Adjustment out of 1000: the kernel adds this share of the machine's memory to the process's own use."""


def run_worker(control: socket.socket, name: str) -> None:
    """Load the model and serve calls until the server closes its end of `control`.

    Args:
        control: receives the job, then one channel for each byte; sends the outcome and log records.
        name: name of the model, shown in process lists.
    """
    _bind_to_server(name)
    job: Job = receive(control)[0]
    send_lock = threading.Lock()
    _log_to(control, send_lock, job.log_level)
    if job.memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (job.memory_limit, job.memory_limit))
    outcome = _run_job(job)
    servable = None
    if isinstance(outcome, Servable):
        servable = outcome
        outcome = Binding.of(servable)
    with send_lock:
        try:
            send(control, outcome)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            send(control, LoadFailure(f"{job.source.folder} cannot run in its own process: {error_text(error)}"))
            return
    if servable is None:
        return
    try:
        while _wait_for_channel(control, send_lock, servable.model) and (channel := _next_channel(control)) is not None:
            threading.Thread(target=CallServer(channel, servable).serve, name="channel", daemon=True).start()
    except (OSError, RuntimeError) as error:
        # A new process starts with fresh threads and descriptors.
        with send_lock:
            send(control, ModelUnavailable(f"It cannot serve more calls: {error_text(error)}"))


def _bind_to_server(name: str) -> None:
    """End whenever the server ends, and ignore signals: the server stops its models after it has drained."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Child processes would inherit SIG_IGN, but they do not inherit a handler.
        signal.signal(number, _ignore)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(_PR_SET_NAME, name.encode()[:15])
    # When memory runs out, the kernel must kill this process and not the server, which restarts it.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _ignore(number: int, frame: FrameType | None) -> None:
    del number, frame


def _run_job(job: Job) -> object:
    limit = f" (the memory limit of its process is {job.memory_limit:,} bytes)" if job.memory_limit else ""
    try:
        return job.function(job.source)
    except ModelError as error:
        return LoadFailure(f"{error}{limit}")
    except BaseException as error:  # noqa: BLE001  the server must receive every error
        return LoadFailure(f"{job.source.folder} cannot be used: {error_text(error)}{limit}")


def _wait_for_channel(control: socket.socket, send_lock: threading.Lock, model: object) -> bool:
    """Wait until the server opens a channel. If the model can no longer answer, report that and return False."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if not isinstance(model, HealthReporting):
        return bool(poll.poll())
    while not poll.poll(_HEALTH_CHECK_SECONDS * 1000):
        if model.unavailable_reason:
            with send_lock:
                send(control, ModelUnavailable(model.unavailable_reason))
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

    def __init__(self, control: socket.socket, send_lock: threading.Lock) -> None:
        super().__init__(cast("Any", None))
        self._control = control
        self._send_lock = send_lock

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Convert the record to built-in types, because the server lacks the types of the model's modules."""
        prepared = super().prepare(record)
        attributes = cast("Mapping[str, object]", vars(prepared))
        fields = {name: msgspec.to_builtins(value, str_keys=True, enc_hook=str) for name, value in attributes.items()}
        return logging.makeLogRecord(fields)

    def enqueue(self, record: logging.LogRecord) -> None:
        # The server may have ended.
        with self._send_lock, suppress(OSError):
            send(self._control, record.__dict__)


def _log_to(control: socket.socket, send_lock: threading.Lock, level: int) -> None:
    handler = _ServerLogHandler(control, send_lock)
    # The server adds the time and the level.
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=level, force=True)
