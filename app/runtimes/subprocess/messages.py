"""The messages between the server and a model process, and how sockets carry them.

Both ends belong to this server, so messages are trusted and pickled.
"""

import mmap
import os
import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from app.settings.model import ModelSource

CallKind = Literal["predict", "stream", "next", "close", "downscale", "explain", "log_likelihoods"]

_HEAD = struct.Struct("<QQ")
"""Length of the message in bytes, and of the shared memory passed with it (0 for none)."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a new process.

    Attributes:
        function: function that loads or describes the source. Pickled by name.
        source: the model.
        memory_limit: maximum bytes of data memory, or None for no limit.
        log_level: lowest level of log records that the process sends.
    """

    function: Callable[[ModelSource], object]
    source: ModelSource
    memory_limit: int | None
    log_level: int


class Call(msgspec.Struct, frozen=True):
    """A call to the model.

    Attributes:
        kind: `predict`; `stream`, `next` and `close` for the first chunk, the next chunk and an early end of a
            stream; `downscale` for the downscale factor of an image; or one of the `explanation_methods`.
        inputs: pickled inputs, the (width, height) of an image, or the arguments of the method; large buffers
            are in shared memory.
        spans: offset and length of each large buffer in shared memory, in bytes.
        niceness: niceness of the calling thread, which the serving thread adopts. Explanations have a higher one.
    """

    kind: CallKind
    inputs: bytes = b""
    spans: Sequence[tuple[int, int]] = ()
    niceness: int = 0


class StreamEnd(msgspec.Struct, frozen=True):
    """The end of a stream."""


class Reply(msgspec.Struct, frozen=True):
    """The reply to a call.

    Attributes:
        outcome: predictions, a chunk, `StreamEnd`, a downscale factor, or a `Failure`.
        memory_in_use: whether the model still uses the shared memory of its inputs, so that the server must not reuse
            it.
    """

    outcome: Any
    memory_in_use: bool = False


class ModelUnavailable(msgspec.Struct, frozen=True):
    """The model reports that it can no longer answer calls, with the reason."""

    reason: str


class InvalidMessageError(ConnectionError):
    """A message cannot be unpickled. A process with corrupted memory may send anything."""


class MissingMemoryError(Exception):
    """A message arrived without its shared memory, because this process cannot open or map more."""


def send(channel: socket.socket, message: object, memory: tuple[int, int] | None = None) -> None:
    """Send a message, optionally with shared memory: its descriptor and its size in bytes.

    Raises:
        OSError: if the other end is closed, or does not read in time.
        Exception: if the message cannot be pickled.
    """
    body = pickle.dumps(message, protocol=5)
    head = _HEAD.pack(len(body), memory[1] if memory else 0)
    parts = [head, body]
    sent = socket.send_fds(channel, parts, [memory[0]]) if memory else channel.sendmsg(parts)
    if sent < len(head) + len(body):
        channel.sendall(memoryview(head + body)[sent:])


def receive(channel: socket.socket) -> tuple[Any, mmap.mmap | None]:
    """Receive the next message and its shared memory, if any.

    Raises:
        EOFError: if the other end is closed.
        OSError: if the rest of the message does not arrive in time.
        InvalidMessageError: if the message cannot be unpickled.
        MissingMemoryError: if the memory cannot be mapped. The next message can still be received.
    """
    received, descriptors, _, _ = socket.recv_fds(channel, _HEAD.size, 1)
    if not received:
        raise EOFError
    length, size = _HEAD.unpack(received + receive_exactly(channel, _HEAD.size - len(received)))
    memory = None
    for descriptor in descriptors:
        try:
            with suppress(OSError):
                memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
    try:
        body = receive_exactly(channel, length)
        if size and memory is None:
            raise MissingMemoryError
        return pickle.loads(body), memory  # noqa: S301  both ends belong to this server
    except (EOFError, OSError, MissingMemoryError):
        raise
    except Exception as error:
        raise InvalidMessageError("The message cannot be unpickled") from error


def receive_exactly(channel: socket.socket, length: int) -> bytearray:
    """Receive exactly `length` bytes.

    Raises:
        EOFError: if the other end closes before.
    """
    received = bytearray(length)
    unread = memoryview(received)
    while unread:
        count = channel.recv_into(unread)
        if not count:
            raise EOFError
        unread = unread[count:]
    return received
