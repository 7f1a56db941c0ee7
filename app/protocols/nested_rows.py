"""Nested rows of JSON: their values in row-major order, and where each of them stands."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from tasks.exchange.error import invalid

__all__ = ("flattened", "leaves", "place")


def flattened(rows: list[Any]) -> list[Any]:
    """The values of nested `rows`, whatever the lengths of these, down to the first level that is not all rows."""
    level = rows
    while level and all(isinstance(each, list) for each in level):
        level = list(chain.from_iterable(level))
    return level


def leaves(rows: list[Any], path: str) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of nested `rows`, and their values in row-major order.

    Raises:
        InferenceError: INVALID_REQUEST naming the row under `path` that is longer or shorter than the first one.
    """
    shape = [len(rows)]
    level = rows
    while level and all(isinstance(each, list) for each in level):
        sizes = list(map(len, level))
        odd = next((index for index, size in enumerate(sizes) if size != sizes[0]), None)
        if odd is not None:
            message = f"Expected rows of one length, {sizes[0]}, got one of {sizes[odd]}"
            raise invalid(message, path + place(odd, shape))
        shape.append(sizes[0])
        level = list(chain.from_iterable(level))
    return tuple(shape), level


def place(index: int, shape: Sequence[int]) -> str:
    """The indices, as a path writes them, of a value that is the `index`-th in row-major order."""
    # NumPy's own function knows no more than 64 dimensions, and a sender may write more.
    written: list[str] = []
    for size in reversed(shape):
        index, at = divmod(index, size)
        written.append(f"[{at}]")
    return "".join(reversed(written))
