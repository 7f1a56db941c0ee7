"""The messages between the server and a model process, and how sockets carry them.

Both ends belong to this server, so messages are trusted and pickled. The large arrays of a call lie in shared memory:
the server copies them once, and the process reads them in place. A socket would copy them twice, in small pieces.
"""

import mmap
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import ErrorKind, InferenceError

CallKind = Literal["predict", "stream", "next", "close", "downscale", "explain"]

_HEAD = struct.Struct("<Q?")
"""Length of the message in bytes, and whether shared memory comes with it."""

_MIN_SHARED_BYTES = 4096
"""Smaller arrays are pickled inline."""

_ALIGNMENT = 64
_MIN_MEMORY_BYTES = 1024 * 1024


class Call(msgspec.Struct, frozen=True):
    """A call to the model.

    Attributes:
        kind: `predict`; `stream`, `next` and `close` for the first chunk, the next chunk and an early end of a
            stream, whose end is None; `downscale` for the downscale factor of an image; or one of the
            `explanation_methods`.
        inputs: pickled inputs, the (width, height) of an image, or the arguments of the method.
        spans: offset and length of each large array in shared memory, in bytes.
        niceness: niceness of the calling thread, which the serving thread adopts. Explanations have a higher one.
    """

    kind: CallKind
    inputs: bytes
    spans: Sequence[tuple[int, int]]
    niceness: int


class InvalidMessageError(ConnectionError):
    """A message cannot be unpickled. A process with corrupted memory may send anything."""


class MissingMemoryError(Exception):
    """A message arrived without its shared memory, because this process cannot open or map more."""


def pickle_inputs(inputs: object) -> tuple[bytes, Sequence[memoryview], Sequence[tuple[int, int]]]:
    """Pickle the inputs of a call, and plan their large arrays in shared memory.

    Returns:
        The pickle, the bytes of each large array, and the span (offset, length) of each in bytes.
    """
    arrays: list[memoryview] = []

    def is_inline(buffer: pickle.PickleBuffer) -> bool:
        array = buffer.raw()
        if array.nbytes >= _MIN_SHARED_BYTES:
            arrays.append(array)
        return array.nbytes < _MIN_SHARED_BYTES

    body = pickle.dumps(inputs, protocol=5, buffer_callback=is_inline)
    offsets = accumulate((-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays), initial=0)
    return body, arrays, [(offset, array.nbytes) for offset, array in zip(offsets, arrays, strict=False)]


def allocate(size: int) -> tuple[int, NDArray[np.uint8]]:
    """Allocate shared memory for at least `size` bytes.

    Raise OVERLOADED if the system has no memory, or no descriptor.

    Returns:
        Its descriptor, which the caller closes after the process has received its own, and its bytes.
    """
    size = max(_MIN_MEMORY_BYTES, 1 << (size - 1).bit_length())
    descriptor = -1
    try:
        descriptor = os.memfd_create("charioteer-inputs")
        os.ftruncate(descriptor, size)
        return descriptor, np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        message = f"No shared memory is available for the model's inputs: {error.strerror}"
        raise InferenceError(ErrorKind.OVERLOADED, message) from None


def send(channel: socket.socket, message: object, memory: int | None = None) -> None:
    """Send a message, optionally with the descriptor of shared memory.

    Raise OSError if the other end is closed, or does not read in time. Raise Exception if the message cannot be
    pickled.
    """
    body = pickle.dumps(message, protocol=5)
    socket.send_fds(channel, [_HEAD.pack(len(body), memory is not None)], [] if memory is None else [memory])
    channel.sendall(body)


def receive(channel: socket.socket) -> tuple[Any, mmap.mmap | None]:
    """Receive the next message and its shared memory, if any.

    Raise EOFError if the other end is closed. Raise OSError if the rest of the message does not arrive in time. Raise
    InvalidMessageError if the message cannot be unpickled. Raise MissingMemoryError if the memory cannot be mapped. The
    next message can still be received.
    """
    head, descriptors, _, _ = socket.recv_fds(channel, _HEAD.size, 1)
    if len(head) < _HEAD.size:
        raise EOFError
    length, has_memory = _HEAD.unpack(head)
    memory = None
    for descriptor in descriptors:
        try:
            with suppress(OSError):
                memory = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
    try:
        body = _receive_exactly(channel, length)
        if has_memory and memory is None:
            raise MissingMemoryError
        return pickle.loads(body), memory  # noqa: S301  both ends belong to this server
    except (EOFError, OSError, MissingMemoryError):
        raise
    except Exception as error:
        raise InvalidMessageError("The message cannot be unpickled") from error


def _receive_exactly(channel: socket.socket, length: int) -> bytearray:
    received = bytearray(length)
    unread = memoryview(received)
    while unread:
        count = channel.recv_into(unread)
        if not count:
            raise EOFError
        unread = unread[count:]
    return received
