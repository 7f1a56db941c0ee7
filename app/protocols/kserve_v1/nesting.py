"""Nested rows of JSON as tensors. V1 has neither shapes nor datatypes, so the nesting gives the shape."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.wire.bfloat16 import from_bfloat16_bits, to_bfloat16_bits
from app.wire.json_body import read_json
from app.wire.json_tensors import numeric_tensor
from app.wire.nested_rows import shape_and_values
from tasks.inference.error import invalid
from tasks.inference.tensor import Datatype, Tensor

__all__ = ("nested_tensor",)

_MAX_FAST_DEPTH = 8
_PEEK_BYTES = 64


def nested_tensor(
    name: str, datatype: Datatype, raw: msgspec.Raw, path: str, parameters: Mapping[str, object] | None = None
) -> Tensor:
    """Return a tensor of `datatype` with the shape of the nested rows in `raw`.

    Raises:
        InferenceError: INVALID_REQUEST with the path ``<path>.data`` and the value's indices; see `numeric_tensor`.
    """
    json_datatype = Datatype.FP32 if datatype is Datatype.BF16 else datatype
    array = _decode_fast(json_datatype, raw)
    if array is None:
        shape, _ = shape_and_values(read_json(raw, list[Any], f"{path}.data"), f"{path}.data")
        array = numeric_tensor(name, json_datatype, shape, raw, {}, path).data
    data = _to_bfloat16(array, path) if datatype is Datatype.BF16 else array
    return Tensor(name=name, datatype=datatype, data=data, parameters=parameters or {})


def _decode_fast(datatype: Datatype, raw: msgspec.Raw) -> NDArray[Any] | None:
    """Return the rows as an array; None for invalid or unusual rows, which need the slow path."""
    start = bytes(memoryview(raw)[:_PEEK_BYTES]).translate(None, b" \t\r\n")
    depth = len(start) - len(start.lstrip(b"["))
    if not 1 <= depth <= _MAX_FAST_DEPTH or datatype.kind == "b":
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


def _to_bfloat16(numbers: NDArray[np.float32], path: str) -> NDArray[np.uint16]:
    bits = to_bfloat16_bits(numbers)
    if not np.isfinite(from_bfloat16_bits(bits)).all():
        raise invalid("Expected BF16 numbers, got one out of range", f"{path}.data")
    return bits
