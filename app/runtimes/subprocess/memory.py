"""Share memory between the server and a model process, for the images of one call at a time.

The server copies pixels into it once, and the process reads them in place. A socket would copy them twice, in small
pieces, at several times the cost.
"""

import mmap
import os
import pickle
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

_MIN_SHARED_BYTES = 4096
"""Smaller arrays are pickled inline."""

_ALIGNMENT = 64
_MIN_SIZE = 1024 * 1024
MAX_REUSED_BYTES = 64 * 1024 * 1024
"""Maximum bytes of memory that is reused. Both ends release larger memory after the call."""


class SharedMemory:
    """Shared memory that the server allocates.

    Args:
        size: minimum number of bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = max(_MIN_SIZE, 1 << (size - 1).bit_length())
        self.descriptor = os.memfd_create("charioteer-inputs", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, self.size)
            self._bytes = np.frombuffer(mmap.mmap(self.descriptor, self.size), np.uint8)
        except BaseException:
            os.close(self.descriptor)
            raise

    @property
    def is_reusable(self) -> bool:
        """Return whether the next call may reuse this memory."""
        return self.size <= MAX_REUSED_BYTES

    def write(self, buffers: Sequence[pickle.PickleBuffer], spans: Sequence[tuple[int, int]]) -> None:
        """Copy each buffer to its span: offset and length in bytes."""
        for buffer, (offset, length) in zip(buffers, spans, strict=True):
            self._bytes[offset : offset + length] = np.frombuffer(buffer.raw(), np.uint8)

    def close_descriptor(self) -> None:
        """Close the descriptor after the model process has received its own."""
        os.close(self.descriptor)


def pickle_out_of_band(value: object) -> tuple[bytes, Sequence[pickle.PickleBuffer], Sequence[tuple[int, int]], int]:
    """Pickle `value` and plan its large buffers in shared memory.

    Returns:
        The pickle, the large buffers, the span (offset, length) of each, and the number of bytes that all spans need.
    """
    buffers: list[pickle.PickleBuffer] = []

    def is_inline(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _MIN_SHARED_BYTES:
            return True
        buffers.append(buffer)
        return False

    body = pickle.dumps(value, protocol=5, buffer_callback=is_inline)
    spans: list[tuple[int, int]] = []
    end = 0
    for buffer in buffers:
        length = buffer.raw().nbytes
        spans.append((end, length))
        end += -(-length // _ALIGNMENT) * _ALIGNMENT
    return body, buffers, spans, end


class ReceivedBuffers:
    """Buffers in memory that the server allocated.

    Args:
        memory: the shared memory, if any.
        spans: offset and length of each buffer in bytes.
    """

    def __init__(self, memory: mmap.mmap | None, spans: Sequence[tuple[int, int]]) -> None:
        self._buffers = [
            np.frombuffer(memory, np.uint8, length, offset) for offset, length in spans if memory is not None
        ]

    def unpickle(self, body: bytes) -> Any:
        """Unpickle `body` with its arrays in shared memory, without a copy."""
        return pickle.loads(body, buffers=self._buffers)  # noqa: S301  the server itself sends it

    def release(self) -> bool:
        """Drop the buffers, and return whether no object that was read still refers to them."""
        # Unpickled arrays keep these base arrays alive, so a live reference means that the memory is in use.
        references = [weakref.ref(buffer) for buffer in self._buffers]
        self._buffers.clear()
        return all(reference() is None for reference in references)
