"""Test nested rows: values, shape and index paths."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.wire.nested_rows import flatten_rows, index_path, shape_and_values
from tasks.inference.error import InferenceError

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(SHAPES)
def test_even_rows_have_the_shape_and_values_of_numpy(shape: list[int]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape)
    assert shape_and_values(array.tolist(), "p") == (tuple(shape), array.ravel().tolist())
    assert flatten_rows(array.tolist()) == array.ravel().tolist()


@pytest.mark.parametrize(
    ("rows", "path", "values"),
    [
        ([[1, 2], [3]], "p[1]", [1, 2, 3]),
        ([[[1], [2]], [[3], [4, 5]]], "p[1][1]", [1, 2, 3, 4, 5]),
        ([[], [1]], "p[1]", [1]),
    ],
)
def test_ragged_rows_are_flattened_but_have_no_shape(rows: list[Any], path: str, values: list[int]) -> None:
    assert flatten_rows(rows) == values
    with pytest.raises(InferenceError) as caught:
        shape_and_values(rows, "p")
    assert caught.value.path == path


@pytest.mark.parametrize("rows", [[1, [2]], [[1], 2], [{}, "a"], []])
def test_mixed_or_empty_rows_are_not_flattened(rows: list[Any]) -> None:
    assert flatten_rows(rows) == rows
    assert shape_and_values(rows, "p") == ((len(rows),), rows)


@given(SHAPES, st.data())
def test_index_path_matches_numpy(shape: list[int], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, int(np.prod(shape)) - 1))
    assert index_path(index, shape) == "".join(f"[{axis_index}]" for axis_index in np.unravel_index(index, shape))
