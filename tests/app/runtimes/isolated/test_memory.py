"""Pictures in memory that two processes see."""

import mmap
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from app.runtimes.isolated.memory import Arrived, SharedMemory, laid_out
from tasks.vision.image import Image

_SHAPES = arrays.array_shapes(max_dims=3, max_side=70)
_ARRAYS = arrays.arrays(st.sampled_from([np.uint8, np.float32, np.bool_, np.int64]), _SHAPES)


def handed_over(value: object) -> tuple[Any, Arrived]:
    """`value` as the other end reads it."""
    body, buffers, spans, size = laid_out(value)
    shared = SharedMemory(max(1, size))
    shared.write(buffers, spans)
    memory = mmap.mmap(shared.descriptor, shared.size)
    shared.close_descriptor()
    arrived = Arrived(memory, spans)
    return arrived.read(body), arrived


@settings(max_examples=30)
@given(st.lists(_ARRAYS, max_size=4))
def test_arrays_are_the_same_at_the_other_end(given_arrays: list[NDArray[Any]]) -> None:
    read, _ = handed_over(given_arrays)
    for one, other in zip(given_arrays, read, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@given(st.integers(0, 3), st.integers(1, 40), st.booleans())
def test_arrays_that_are_cut_or_turned_are_the_same_too(start: int, step: int, turned: bool) -> None:
    whole = np.arange(200 * 300, dtype=np.int32).reshape(200, 300)
    cut = whole[start::step].T if turned else whole[start::step]
    np.testing.assert_array_equal(handed_over(cut)[0], cut)


def test_pixels_lie_in_the_memory_and_what_is_small_does_not() -> None:
    body, buffers, spans, size = laid_out([Image(np.zeros((480, 640, 3), np.uint8)), np.zeros(10), b"x" * 5000])
    assert [each.raw().nbytes for each in buffers] == [480 * 640 * 3]
    assert list(spans) == [(0, 480 * 640 * 3)]
    assert size == 480 * 640 * 3
    assert len(body) < 6000


def test_buffers_do_not_overlap() -> None:
    _, _, spans, size = laid_out([np.zeros(length, np.uint8) for length in (5001, 4096, 9999)])
    ends = [offset + length for offset, length in spans]
    assert all(end <= offset for end, (offset, _) in zip(ends, spans[1:], strict=False))
    assert ends[-1] <= size


def test_whoever_changes_a_picture_changes_their_own() -> None:
    pixels = np.zeros((100, 100), np.uint8)
    read, _ = handed_over(pixels)
    read += 1
    assert read.max() == 1
    assert pixels.max() == 0


def test_memory_is_kept_by_a_part_of_what_was_read() -> None:
    read, arrived = handed_over(np.zeros((100, 100), np.uint8))
    part = read[5]
    del read
    assert not arrived.let_go()
    assert part.max() == 0


def test_memory_is_free_once_nothing_refers_to_it() -> None:
    read, arrived = handed_over(np.zeros((100, 100), np.uint8))
    del read
    assert arrived.let_go()


def test_memory_that_is_not_to_be_had_leaves_no_descriptor() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(OSError, match=r"memory|large"):
            SharedMemory(2**61)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(("wanted", "size"), [(1, 2**20), (2**20, 2**20), (2**20 + 1, 2**21), (2**26 + 1, 2**27)])
def test_memory_comes_in_sizes_that_are_used_again(wanted: int, size: int) -> None:
    shared = SharedMemory(wanted)
    shared.close_descriptor()
    assert shared.size == size
    assert shared.worth_keeping == (size <= 2**26)
