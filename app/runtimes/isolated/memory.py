"""Memory that both processes see, for the pictures of one call at a time.

Pixels are copied into it once, and read where they lie. Through a socket they would be copied twice, by system calls
that take a piece each, which costs several times as much.
"""

import mmap
import os
import pickle
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ("LARGEST_KEPT", "Arrived", "SharedMemory", "laid_out")

_SMALLEST_APART = 4096
"""Bytes of an array that is not pickled with the rest."""

_ALIGNMENT = 64
_SMALLEST = 1024 * 1024
LARGEST_KEPT = 64 * 1024 * 1024
"""Bytes of memory that is used again. More is given back after the call, by both ends."""


class SharedMemory:
    """One end's view of memory that was made here.

    Args:
        size: bytes that it has at least.
    """

    def __init__(self, size: int) -> None:
        self.size = max(_SMALLEST, 1 << (size - 1).bit_length())
        self.descriptor = os.memfd_create("charioteer-pictures", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, self.size)
            self._bytes = np.frombuffer(mmap.mmap(self.descriptor, self.size), np.uint8)
        except BaseException:
            os.close(self.descriptor)
            raise

    @property
    def worth_keeping(self) -> bool:
        """Whether the next call may use it again."""
        return self.size <= LARGEST_KEPT

    def write(self, buffers: Sequence[pickle.PickleBuffer], spans: Sequence[tuple[int, int]]) -> None:
        """Copy each of `buffers` to its place."""
        for buffer, (offset, length) in zip(buffers, spans, strict=True):
            self._bytes[offset : offset + length] = np.frombuffer(buffer.raw(), np.uint8)

    def close_descriptor(self) -> None:
        """The other end has its own by now."""
        os.close(self.descriptor)


def laid_out(value: object) -> tuple[bytes, Sequence[pickle.PickleBuffer], Sequence[tuple[int, int]], int]:
    """`value` pickled, its large buffers, the place in shared memory for each, and how many bytes that takes."""
    buffers: list[pickle.PickleBuffer] = []

    def apart(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _SMALLEST_APART:
            return True
        buffers.append(buffer)
        return False

    body = pickle.dumps(value, protocol=5, buffer_callback=apart)
    spans: list[tuple[int, int]] = []
    end = 0
    for buffer in buffers:
        length = buffer.raw().nbytes
        spans.append((end, length))
        end += -(-length // _ALIGNMENT) * _ALIGNMENT
    return body, buffers, spans, end


class Arrived:
    """What lies in memory that the other end has made.

    Args:
        memory: all of it, None where there is none.
        spans: where each buffer lies.
    """

    def __init__(self, memory: mmap.mmap | None, spans: Sequence[tuple[int, int]]) -> None:
        self._buffers = [
            np.frombuffer(memory, np.uint8, length, offset) for offset, length in spans if memory is not None
        ]

    def read(self, body: bytes) -> Any:
        """What was pickled, its arrays where they lie."""
        return pickle.loads(body, buffers=self._buffers)  # noqa: S301  from this server's own process

    def let_go(self) -> bool:
        """Whether nothing that was read refers to the memory any more."""
        # What was read refers to these arrays, and to nothing else that could be asked who refers to it.
        referred = [weakref.ref(each) for each in self._buffers]
        self._buffers.clear()
        return all(each() is None for each in referred)
