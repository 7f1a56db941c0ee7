"""Decode `ndarray`: nested numbers whose nesting gives the shape."""

from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.wire.nested_rows import index_path
from tasks.inference.error import invalid, quote_value

__all__ = ("nested_numbers",)

_MAX_DIMENSIONS = 32


def nested_numbers(value: object, path: str) -> NDArray[np.float32]:
    """Return nested rows of equal length, or a single number, as an FP32 array.

    Raises:
        InferenceError: INVALID_REQUEST naming the first row of another length, or the first value that is not in range.
    """
    shape = _first_shape(value, path)
    level: list[Any] = [value]
    for depth, size in enumerate(shape):
        for position, row in enumerate(level):
            if not isinstance(row, list) or len(cast("list[Any]", row)) != size:
                actual = f"{len(cast('list[Any]', row))}" if isinstance(row, list) else quote_value(row)
                indices = index_path(position, shape[:depth])
                raise invalid(f"Expected a row of {size}, as the first one is, got {actual}", f"{path}{indices}")
        level = list(chain.from_iterable(level))
    if not set(map(type, level)) <= {int, float}:
        position = next(index for index, number in enumerate(level) if type(number) not in (int, float))
        raise invalid(f"Expected a number, got {quote_value(level[position])}", f"{path}{index_path(position, shape)}")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(level, np.float64).astype(np.float32)
    except OverflowError:
        raise invalid("Expected FP32 numbers, got one out of range", path) from None
    invalid_positions = np.flatnonzero(~np.isfinite(numbers))
    if invalid_positions.size:
        position = int(invalid_positions[0])
        indices = index_path(position, shape)
        raise invalid(f"Expected FP32 numbers, got {quote_value(level[position])}", f"{path}{indices}")
    return numbers.reshape(shape)


def _first_shape(value: object, path: str) -> tuple[int, ...]:
    """Return the lengths of the first rows, from the outermost inwards."""
    shape: list[int] = []
    while isinstance(value, list):
        row = cast("list[Any]", value)
        shape.append(len(row))
        if len(shape) > _MAX_DIMENSIONS:
            raise invalid(f"Expected at most {_MAX_DIMENSIONS} dimensions, got more", path)
        if not row:
            break
        value = row[0]
    return tuple(shape)
