"""Numeric tensors in JSON protocols: a shape, and flat or nested numbers in row-major order.

NumPy has no BF16, so arrays hold its bits: the upper halves of FP32 numbers.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.wire.json_body import first_path, read_json
from tasks.inference.error import invalid, quote_value
from tasks.inference.tensor import Datatype, Tensor, fits_shape

MAX_DIMENSIONS = 32
"""The limit of NumPy 1, which many clients use."""

_MAX_SIZE = 2**59
"""The limit of NumPy for elements of 8 bytes."""

_MAX_FAST_DEPTH = 8
_PEEK_BYTES = 64

_BF16_NAN = np.uint16(0x7FC0)
_DATATYPES = {datatype.value: datatype for datatype in Datatype}


def read_datatype(name: str, path: str) -> Datatype:
    """Return the datatype called `name`. Raise INVALID_REQUEST listing the known datatypes."""
    datatype = _DATATYPES.get(name)
    if datatype is None:
        raise invalid(f"Expected one of {', '.join(Datatype)}, got {quote_value(name)}", path)
    return datatype


def numeric_tensor(
    name: str, datatype: Datatype, shape: Sequence[int], data: msgspec.Raw, parameters: Mapping[str, object], path: str
) -> Tensor:
    """Return a tensor of `shape` from a flat or nested JSON array.

    A dimension of `shape` may be -1: one of them if the array is flat, any of them if it is nested.

    Integers are accepted for floating-point datatypes, and booleans for integer datatypes (0 and 1). Other mismatches
    are rejected. Raise INVALID_REQUEST naming the field under `path`: a value of another type or out of range, or a
    count, or rows, that do not fit the shape.
    """
    if datatype is Datatype.BF16:
        raise invalid("BF16 has no form in JSON; send FP32", f"{path}.datatype")
    numbers = read_numbers(datatype, data, f"{path}.data", shape, f"{path}.shape")
    return Tensor(name=name, datatype=datatype, data=numbers, parameters=parameters)


def read_numbers(
    datatype: Datatype, data: msgspec.Raw, path: str, shape: Sequence[int] | None = None, shape_path: str = ""
) -> NDArray[Any]:
    """Return the numbers at `path` as `numeric_tensor` does, by default in the shape of their nested rows."""
    array = _decode_fast(datatype, data)
    if array is None:
        array = array_of_rows(datatype, read_json(data, list[Any], path), path)
    if shape is None:
        return array
    if array.ndim == 1:
        return _shaped(array, shape, shape_path)
    check_rows(array.shape, shape, shape_path)
    return array


def array_of_rows(datatype: Datatype, rows: list[Any], path: str) -> NDArray[Any]:
    """Return nested rows as an array of their shape. Raise INVALID_REQUEST as `numeric_tensor`."""
    rows_shape, _ = shape_and_values(rows, path)
    return _shaped(_decode_rows(datatype, rows, path), rows_shape, path)


def _decode_fast(datatype: Datatype, data: msgspec.Raw) -> NDArray[Any] | None:
    """Return the rows as an array; None for invalid or unusual rows, which need the slow path."""
    start = bytes(memoryview(data)[:_PEEK_BYTES]).translate(None, b" \t\r\n")
    depth = len(start) - len(start.lstrip(b"["))
    if not 1 <= depth <= _MAX_FAST_DEPTH or datatype.kind == "b":
        return None
    try:
        with np.errstate(over="ignore"):
            array = np.array(_decoder(datatype.kind, depth).decode(data), datatype.dtype)
    except (msgspec.DecodeError, ValueError, OverflowError):
        return None
    return array if datatype.kind != "f" or np.isfinite(array).all() else None


@cache
def _decoder(kind: str, depth: int) -> msgspec.json.Decoder[Any]:
    rows: Any = float if kind == "f" else int
    for _ in range(depth):
        rows = list[rows]
    return msgspec.json.Decoder(rows)


def _decode_rows(datatype: Datatype, rows: list[Any], path: str) -> NDArray[Any]:
    numbers = _flat_numbers(rows, datatype, path)
    try:
        with np.errstate(over="ignore"):
            array = np.array(numbers, dtype=datatype.dtype)
    except OverflowError:
        raise invalid(f"Expected {datatype} numbers, got one out of range", path) from None
    if datatype is Datatype.BOOL and any(number not in (0, 1) for number in numbers):
        raise invalid("Expected true, false, 0 or 1, got another number", path)
    if datatype.kind == "f" and not np.all(np.isfinite(array)):
        raise invalid(f"Expected {datatype} numbers, got one out of range", path)
    return array


def _flat_numbers(values: list[Any], datatype: Datatype, path: str) -> Sequence[object]:
    """Return nested rows in row-major order, after a check that `datatype` accepts the type of every value."""
    allowed: set[type] = {int, float} if datatype.kind == "f" else {int, bool}
    flat_values = flatten_rows(values)
    if set(map(type, flat_values)) <= allowed:
        return flat_values
    mismatch = first_path(values, lambda value: type(value) not in {list, *allowed}, path)
    if mismatch is None:
        raise invalid("Expected a flat array, or nested rows that are all of one depth", path)
    type_name = "null" if mismatch[1] is None else type(mismatch[1]).__name__
    raise invalid(f"Expected {datatype} numbers, got {type_name}", mismatch[0])


def check_rows(rows_shape: Sequence[int], shape: Sequence[int], path: str) -> None:
    """Reject a `shape` that contradicts the shape of nested rows. -1 is any size. Raise INVALID_REQUEST with `path`."""
    if not fits_shape(rows_shape, shape):
        rows = quote_value(list(rows_shape))
        raise invalid(f"Expected the shape of the rows in data, {rows}, got {quote_value(list(shape))}", path)


def _shaped(values: NDArray[Any], shape: Sequence[int], path: str) -> NDArray[Any]:
    known_sizes = [size for size in shape if size != -1]
    if len(shape) - len(known_sizes) > 1:
        raise invalid(f"Expected sizes of 0 or more, at most one of them -1, got {quote_value(list(shape))}", path)
    check_shape(known_sizes, path)
    known_size = math.prod(known_sizes)
    is_known = len(known_sizes) == len(shape)
    if not (known_size == values.size if is_known else known_size and values.size % known_size == 0):
        raise invalid(f"Expected a shape for the {values.size} numbers in data, got {quote_value(list(shape))}", path)
    return values.reshape(shape)


def check_shape(shape: Sequence[int], path: str) -> None:
    """Reject a shape that no array has. Raise INVALID_REQUEST with `path`."""
    if len(shape) > MAX_DIMENSIONS:
        raise invalid(f"Expected at most {MAX_DIMENSIONS} dimensions, got {len(shape)}", path)
    if shape and min(shape) < 0:
        raise invalid(f"Expected sizes of 0 or more, got {quote_value(list(shape))}", path)
    # NumPy multiplies the sizes of an empty array as well.
    if math.prod(filter(None, shape)) > _MAX_SIZE:
        raise invalid(f"Expected sizes that can be counted, got {quote_value(list(shape))}", path)


def to_bfloat16_bits(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of the BF16 nearest to each of `numbers`, ties to even; overflow becomes infinity."""
    bits = numbers.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(numbers), _BF16_NAN, rounded)


def flatten_rows(rows: list[Any]) -> list[Any]:
    """Return the values of nested `rows` of any lengths, down to the first level that has values other than rows."""
    level = rows
    while level and all(isinstance(row, list) for row in level):
        level = list(chain.from_iterable(level))
    return level


def shape_and_values(rows: list[Any], path: str) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of nested `rows`, and their values in row-major order.

    Raise INVALID_REQUEST naming the first row under `path` whose length differs.
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
