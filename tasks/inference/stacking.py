"""Stack rows of different lengths into a padded tensor and a tensor of counts, as detection SavedModels do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.inference.tensor import Datatype, Tensor


def count_tensor(name: str, rows: Sequence[Sequence[object]]) -> Tensor:
    """Return INT32 (N,): the length of each row."""
    return Tensor(name=name, datatype=Datatype.INT32, data=np.array([len(row) for row in rows], np.int32))


def stack_numbers(name: str, rows: Sequence[NDArray[Any]], datatype: Datatype = Datatype.FP32) -> Tensor:
    """Return (N, M, ...) of `datatype` from N arrays of up to M entries, padded with 0."""
    max_length = max((len(row) for row in rows), default=0)
    inner = rows[0].shape[1:] if rows else ()
    data = np.zeros((len(rows), max_length, *inner), datatype.dtype)
    for padded_row, row in zip(data, rows, strict=True):
        padded_row[: len(row)] = row
    return Tensor(name=name, datatype=datatype, data=data)


def stack_text(name: str, rows: Sequence[Sequence[str]]) -> Tensor:
    """Return BYTES (N, M) of UTF-8 from N rows of up to M texts, padded with empty texts."""
    max_length = max((len(row) for row in rows), default=0)
    data = np.full((len(rows), max_length), b"", object)
    for padded_row, row in zip(data, rows, strict=True):
        padded_row[: len(row)] = [text.encode() for text in row]
    return Tensor(name=name, datatype=Datatype.BYTES, data=data)
