"""Nested rows: their values, their shape, and the places of both."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.nested_rows import flattened, leaves, place
from tasks.exchange.error import InferenceError

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(SHAPES)
def test_even_rows_are_read_as_numpy_reads_them(shape: list[int]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape)
    assert leaves(array.tolist(), "p") == (tuple(shape), array.ravel().tolist())
    assert flattened(array.tolist()) == array.ravel().tolist()


@pytest.mark.parametrize(
    ("rows", "path", "values"),
    [
        ([[1, 2], [3]], "p[1]", [1, 2, 3]),
        ([[[1], [2]], [[3], [4, 5]]], "p[1][1]", [1, 2, 3, 4, 5]),
        ([[], [1]], "p[1]", [1]),
    ],
)
def test_uneven_rows_are_flattened_but_have_no_shape(rows: list[Any], path: str, values: list[int]) -> None:
    assert flattened(rows) == values
    with pytest.raises(InferenceError) as caught:
        leaves(rows, "p")
    assert caught.value.path == path


@pytest.mark.parametrize("rows", [[1, [2]], [[1], 2], [{}, "a"], []])
def test_what_is_not_all_rows_is_left_as_it_is(rows: list[Any]) -> None:
    assert flattened(rows) == rows
    assert leaves(rows, "p") == ((len(rows),), rows)


@given(SHAPES, st.data())
def test_places_are_those_of_numpy(shape: list[int], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, int(np.prod(shape)) - 1))
    assert place(index, shape) == "".join(f"[{each}]" for each in np.unravel_index(index, shape))
