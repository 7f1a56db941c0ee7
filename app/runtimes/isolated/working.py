"""What a model's own process does: load the model, and answer on every line that the server opens."""

import array
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

from app.engine.reasons import told
from app.engine.servable import BoundServable, Faltering
from app.runtimes.isolated.answering import Line
from app.runtimes.isolated.messages import Binding, NotLoaded, Order, Stuck, receive, send
from app.settings.model import ModelError

__all__ = ("work",)

# From Linux's prctl.h.
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15

_SECONDS_BETWEEN_LOOKS = 1.0
"""Whether the model still answers."""

_OOM_SCORE = "500"
"""Of 1000: as if it had so many thousandths of the machine's memory more than it has."""


def work(control: socket.socket, name: str) -> None:
    """Do what the server asks for, until it closes its end of `control`.

    Args:
        control: brings an order, then a line for each byte; takes the outcome, and what is logged.
        name: of the model, for whoever lists processes.
    """
    _belong_to_server(name)
    order: Order = receive(control)[0]
    telling = threading.Lock()
    _log_to(control, telling, order.log_level)
    if order.memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (order.memory_limit, order.memory_limit))
    outcome = _made(order)
    bound = None
    if isinstance(outcome, BoundServable):
        bound = cast("BoundServable[Any, Any]", outcome)
        outcome = _binding(bound)
    with telling:
        try:
            send(control, outcome)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            send(control, NotLoaded(f"{order.source.folder} cannot run in a process of its own: {told(error)}"))
            return
    if bound is None:
        return
    try:
        while _is_asked(control, telling, bound.model) and (line := _next_line(control)) is not None:
            threading.Thread(target=Line(line, bound).serve, name="line", daemon=True).start()
    except (OSError, RuntimeError) as error:
        # Whatever it has used up, a new process has again.
        with telling:
            send(control, Stuck(f"It takes no more calls: {told(error)}"))


def _belong_to_server(name: str) -> None:
    """End with the server however it ends, and leave its signals to it: it ends its models when it has drained."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What the model starts is not to inherit this, as it would that a signal is ignored by the system.
        signal.signal(number, _ignored)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(_PR_SET_NAME, name.encode()[:15])
    # Where memory runs out, this process is to be ended, and not the server, which starts it again.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _ignored(number: int, frame: FrameType | None) -> None:
    del number, frame


def _made(order: Order) -> object:
    limit = f" (its process may have {order.memory_limit:,} bytes of memory)" if order.memory_limit else ""
    try:
        return order.job(order.source)
    except ModelError as error:
        return NotLoaded(f"{error}{limit}")
    except BaseException as error:  # noqa: BLE001  whatever it is, the server is to be told
        return NotLoaded(f"{order.source.folder} cannot be used: {told(error)}{limit}")


def _binding(servable: BoundServable[Any, Any]) -> Binding:
    return Binding(
        task=servable.task,
        description=servable.description,
        defaults=servable.defaults,
        streams=callable(getattr(servable.model, "stream", None)),
        shrinks=servable.detail is not None,
    )


def _is_asked(control: socket.socket, telling: threading.Lock, model: object) -> bool:
    """Wait until the server wants something. False when the model answers nobody any more, which the server is told."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if not isinstance(model, Faltering):
        return bool(poll.poll())
    while not poll.poll(_SECONDS_BETWEEN_LOOKS * 1000):
        if model.trouble:
            with telling:
                send(control, Stuck(model.trouble))
            return False
    return True


def _next_line(control: socket.socket) -> socket.socket | None:
    """A line that the server has opened, None when it wants nothing more."""
    size = array.array("i").itemsize
    first, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(size))
    if not first:
        return None
    if not ancillary:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return socket.socket(fileno=int.from_bytes(ancillary[0][2][:size], "little"))


class _ToServer(logging.handlers.QueueHandler):
    """Puts what is logged here among the lines of the server."""

    def __init__(self, control: socket.socket, telling: threading.Lock) -> None:
        super().__init__(cast("Any", None))
        self._control = control
        self._telling = telling

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """The record in types that the server has too: those of the model's own modules exist only here."""
        prepared = super().prepare(record)
        said = cast("Mapping[str, object]", vars(prepared))
        fields = {name: msgspec.to_builtins(each, str_keys=True, enc_hook=str) for name, each in said.items()}
        return logging.makeLogRecord(fields)

    def enqueue(self, record: logging.LogRecord) -> None:
        # A server that is gone reads no log.
        with self._telling, suppress(OSError):
            send(self._control, record.__dict__)


def _log_to(control: socket.socket, telling: threading.Lock, level: int) -> None:
    handler = _ToServer(control, telling)
    # The server says when, and how bad.
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=level, force=True)
