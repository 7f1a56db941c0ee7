"""Test arrays in memory that two processes share."""

import mmap
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from app.runtimes.subprocess.memory import ReceivedBuffers, SharedMemory, pickle_out_of_band
from tasks.vision.image import Image

_SHAPES = arrays.array_shapes(max_dims=3, max_side=70)
_ARRAYS = arrays.arrays(st.sampled_from([np.uint8, np.float32, np.bool_, np.int64]), _SHAPES)


def transfer(value: object) -> tuple[Any, ReceivedBuffers]:
    """Return `value` as the other process reads it."""
    body, buffers, spans, size = pickle_out_of_band(value)
    shared = SharedMemory(max(1, size))
    shared.write(buffers, spans)
    memory = mmap.mmap(shared.descriptor, shared.size)
    shared.close_descriptor()
    arrived = ReceivedBuffers(memory, spans)
    return arrived.unpickle(body), arrived


@settings(max_examples=30)
@given(st.lists(_ARRAYS, max_size=4))
def test_arrays_arrive_unchanged(sent_arrays: list[NDArray[Any]]) -> None:
    received_arrays, _ = transfer(sent_arrays)
    for sent, received in zip(sent_arrays, received_arrays, strict=True):
        assert sent.dtype == received.dtype
        np.testing.assert_array_equal(sent, received)


@given(st.integers(0, 3), st.integers(1, 40), st.booleans())
def test_sliced_or_transposed_arrays_arrive_unchanged(start: int, step: int, transposed: bool) -> None:
    full = np.arange(200 * 300, dtype=np.int32).reshape(200, 300)
    view = full[start::step].T if transposed else full[start::step]
    np.testing.assert_array_equal(transfer(view)[0], view)


def test_only_large_arrays_are_put_in_shared_memory() -> None:
    body, buffers, spans, size = pickle_out_of_band(
        [Image(np.zeros((480, 640, 3), np.uint8)), np.zeros(10), b"x" * 5000]
    )
    assert [buffer.raw().nbytes for buffer in buffers] == [480 * 640 * 3]
    assert list(spans) == [(0, 480 * 640 * 3)]
    assert size == 480 * 640 * 3
    assert len(body) < 6000


def test_buffers_do_not_overlap() -> None:
    _, _, spans, size = pickle_out_of_band([np.zeros(length, np.uint8) for length in (5001, 4096, 9999)])
    ends = [offset + length for offset, length in spans]
    assert all(end <= offset for end, (offset, _) in zip(ends, spans[1:], strict=False))
    assert ends[-1] <= size


def test_changes_to_received_image_do_not_reach_sender() -> None:
    pixels = np.zeros((100, 100), np.uint8)
    received, _ = transfer(pixels)
    received += 1
    assert received.max() == 1
    assert pixels.max() == 0


def test_memory_stays_mapped_while_view_refers_to_it() -> None:
    received, arrived = transfer(np.zeros((100, 100), np.uint8))
    view = received[5]
    del received
    assert not arrived.release()
    assert view.max() == 0


def test_memory_is_released_once_nothing_refers_to_it() -> None:
    received, arrived = transfer(np.zeros((100, 100), np.uint8))
    del received
    assert arrived.release()


def test_failed_allocation_leaves_no_open_descriptor() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(OSError, match=r"memory|large"):
            SharedMemory(2**61)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(("requested", "size"), [(1, 2**20), (2**20, 2**20), (2**20 + 1, 2**21), (2**26 + 1, 2**27)])
def test_memory_size_is_rounded_up_for_reuse(requested: int, size: int) -> None:
    shared = SharedMemory(requested)
    shared.close_descriptor()
    assert shared.size == size
    assert shared.is_reusable == (size <= 2**26)
