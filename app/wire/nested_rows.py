"""Nested rows of JSON: their values in row-major order, and the path of each value."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from tasks.inference.error import invalid


def flatten_rows(rows: list[Any]) -> list[Any]:
    """Return the values of nested `rows` of any lengths, down to the first level that has values other than rows."""
    level = rows
    while level and all(isinstance(row, list) for row in level):
        level = list(chain.from_iterable(level))
    return level


def shape_and_values(rows: list[Any], path: str) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of nested `rows`, and their values in row-major order.

    Raises:
        InferenceError: INVALID_REQUEST naming the first row under `path` whose length differs.
    """
    shape = [len(rows)]
    level = rows
    while level and all(isinstance(row, list) for row in level):
        sizes = list(map(len, level))
        odd_index = next((index for index, size in enumerate(sizes) if size != sizes[0]), None)
        if odd_index is not None:
            message = f"Expected rows of one length, {sizes[0]}, got one of {sizes[odd_index]}"
            raise invalid(message, path + index_path(odd_index, shape))
        shape.append(sizes[0])
        level = list(chain.from_iterable(level))
    return tuple(shape), level


def index_path(index: int, shape: Sequence[int]) -> str:
    """Return the indices, as in a path, of the value at `index` in row-major order."""
    # np.unravel_index supports at most 64 dimensions, and a client may send more.
    parts: list[str] = []
    for size in reversed(shape):
        index, position = divmod(index, size)
        parts.append(f"[{position}]")
    return "".join(reversed(parts))
