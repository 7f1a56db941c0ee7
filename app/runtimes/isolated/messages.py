"""What a server and a model's own process say to each other, and how that goes through a socket.

Both ends are this server's: what comes is unpickled without a doubt about it.
"""

import mmap
import os
import pickle
import socket
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from app.engine.description import ModelDescription
from app.settings.model import ModelSource
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = (
    "Binding",
    "Ended",
    "Failure",
    "LostMemoryError",
    "NoMessageError",
    "NotLoaded",
    "Order",
    "Question",
    "Reply",
    "Stuck",
    "receive",
    "receive_exactly",
    "send",
)

_HEAD = struct.Struct("<QQ")
"""Bytes of the message, and of the memory that is handed over with it: 0 for none."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is started for.

    Attributes:
        job: done with the source: loads it, or says what it is. Pickled as the name of a function.
        source: the model.
        memory_limit: bytes of memory that it may have, None for any number.
        log_level: what it logs is told from this level on.
    """

    job: Callable[[ModelSource], object]
    source: ModelSource
    memory_limit: int | None
    log_level: int


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a servable but its model.

    Attributes:
        task: of the model.
        description: what is known of it.
        defaults: request parameters that its settings give.
        streams: whether the model tells its answers while it makes them.
        shrinks: whether the model says how small it wants its pictures.
    """

    task: Any
    description: ModelDescription
    defaults: Mapping[str, object]
    streams: bool
    shrinks: bool


class NotLoaded(msgspec.Struct, frozen=True):
    """A model that cannot be served, with a sentence for its owner."""

    reason: str


class Question(msgspec.Struct, frozen=True):
    """What the model is asked for.

    Attributes:
        kind: predictions; the first piece of a stream; its next one; its end, before it is there; or how small a
            picture of (width, height) may be.
        given: inputs of the model, or the size of a picture; pickled, its large buffers apart.
        spans: where these lie in the memory that both share: offset and length.
        niceness: of the thread that asks, which its line takes over: of explanations it is higher, for good.
    """

    kind: Literal["predict", "stream", "next", "close", "detail"]
    given: bytes = b""
    spans: Sequence[tuple[int, int]] = ()
    niceness: int = 0


class Ended(msgspec.Struct, frozen=True):
    """A stream has come to its end."""


class Failure(msgspec.Struct, frozen=True):
    """An `InferenceError` in plain fields: exceptions of a model's own need not survive pickling."""

    kind: ErrorKind
    message: str
    path: str = ""

    @classmethod
    def of(cls, error: InferenceError) -> "Failure":
        """What `error` says."""
        return cls(error.kind, error.message, error.path)

    def error(self) -> InferenceError:
        """The error again."""
        return InferenceError(self.kind, self.message, self.path)


class Reply(msgspec.Struct, frozen=True):
    """The answer to a question.

    Attributes:
        outcome: predictions, a piece, `Ended`, how much smaller, or a `Failure`.
        kept: whether the model holds on to the memory that its inputs came in, which is then not to be written again.
    """

    outcome: Any
    kept: bool = False


class Stuck(msgspec.Struct, frozen=True):
    """The model itself says that it answers nobody any more, and why."""

    reason: str


class NoMessageError(ConnectionError):
    """What came cannot be read. A process that has overwritten its own memory may write anything."""


class LostMemoryError(Exception):
    """A message has come, and the memory that belongs to it has not: this process may open, or map, no more."""


def send(line: socket.socket, message: object, memory: tuple[int, int] | None = None) -> None:
    """Send a message, and with it memory: its descriptor and its size in bytes.

    Raises:
        OSError: when nobody is there, or takes it in time.
        Exception: when it cannot be pickled.
    """
    body = pickle.dumps(message, protocol=5)
    head = _HEAD.pack(len(body), memory[1] if memory else 0)
    descriptors = [] if memory is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [memory[0]]))]
    sent = line.sendmsg([head, body], descriptors)
    if sent < len(head) + len(body):
        line.sendall(memoryview(head + body)[sent:])


def receive(line: socket.socket) -> tuple[Any, mmap.mmap | None]:
    """The next message, and the memory that came with it.

    Raises:
        EOFError: when nobody is there any more.
        OSError: when the rest of it does not come in time, a NoMessageError when it is no message.
        LostMemoryError: when the memory could not be taken over; the next message can be received.
    """
    first, control, _, _ = line.recvmsg(_HEAD.size, socket.CMSG_SPACE(array("i").itemsize))
    if not first:
        raise EOFError
    length, size = _HEAD.unpack(first + receive_exactly(line, _HEAD.size - len(first)))
    memory = None
    for _, _, data in control:
        descriptor = int.from_bytes(data, "little")
        try:
            with suppress(OSError):
                memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
    try:
        body = receive_exactly(line, length)
        if size and memory is None:
            raise LostMemoryError
        return pickle.loads(body), memory  # noqa: S301  from this server's own process
    except (EOFError, OSError, LostMemoryError):
        raise
    except Exception as error:
        raise NoMessageError("What came is no message") from error


def receive_exactly(line: socket.socket, length: int) -> bytearray:
    """So many bytes.

    Raises:
        EOFError: when the other end closes before they are there.
    """
    received = bytearray(length)
    rest = memoryview(received)
    while rest:
        count = line.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return received
