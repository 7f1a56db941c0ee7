"""Nested rows of JSON, whose shape is their own: V1 says neither shapes nor datatypes."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.protocols.json_body import read_json
from app.protocols.json_tensors import numeric_tensor
from tasks.exchange.error import invalid
from tasks.exchange.tensor import Datatype, Tensor

__all__ = ("leaves", "nested_tensor", "place")

_QUICK_DEPTH = 8
_PEEK = 64


def nested_tensor(
    name: str, datatype: Datatype, raw: msgspec.Raw, path: str, parameters: Mapping[str, object] | None = None
) -> Tensor:
    """A tensor of `datatype`, of the shape that the rows in `raw` have.

    Raises:
        InferenceError: INVALID_REQUEST, its path ``<path>.data`` and the indices of the value; see `numeric_tensor`.
    """
    written = Datatype.FP32 if datatype is Datatype.BF16 else datatype
    array = _quick(written, raw)
    if array is None:
        shape, _ = leaves(read_json(raw, list[Any], f"{path}.data"), f"{path}.data")
        array = numeric_tensor(name, written, shape, raw, {}, path).data
    data = _shortened(array) if datatype is Datatype.BF16 else array
    return Tensor(name=name, datatype=datatype, data=data, parameters=parameters or {})


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


def _quick(datatype: Datatype, raw: msgspec.Raw) -> NDArray[Any] | None:
    """The rows as an array; None where there is something wrong, or unusual, with them."""
    start = bytes(memoryview(raw)[:_PEEK]).translate(None, b" \t\r\n")
    depth = len(start) - len(start.lstrip(b"["))
    if not 1 <= depth <= _QUICK_DEPTH or datatype.kind == "b":
        return None
    try:
        with np.errstate(over="ignore"):
            array = np.array(_decoder(datatype.kind, depth).decode(raw), datatype.dtype)
    except (msgspec.DecodeError, ValueError, OverflowError):
        return None
    return array if datatype.kind != "f" or np.isfinite(array).all() else None


@cache
def _decoder(kind: str, depth: int) -> msgspec.json.Decoder[Any]:
    rows: Any = float if kind == "f" else int
    for _ in range(depth):
        rows = list[rows]
    return msgspec.json.Decoder(rows)


def _shortened(wide: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of BF16 that are nearest to FP32 numbers, ties to even."""
    bits = wide.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
