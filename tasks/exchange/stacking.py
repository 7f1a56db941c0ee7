"""Rows of different lengths as one padded tensor, with a tensor of counts beside it, as detection SavedModels do it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.exchange.tensor import Datatype, Tensor

__all__ = ("counts", "stacked_numbers", "stacked_text")


def counts(name: str, rows: Sequence[Sequence[object]]) -> Tensor:
    """INT32 (N,): how many of each row's places are in use."""
    return Tensor(name=name, datatype=Datatype.INT32, data=np.array([len(row) for row in rows], np.int32))


def stacked_numbers(name: str, rows: Sequence[NDArray[Any]], datatype: Datatype = Datatype.FP32) -> Tensor:
    """(N, M, ...) of `datatype` from N arrays of up to M entries each; places not in use are 0."""
    longest = max((len(row) for row in rows), default=0)
    inner = rows[0].shape[1:] if rows else ()
    data = np.zeros((len(rows), longest, *inner), datatype.dtype)
    for place, row in zip(data, rows, strict=True):
        place[: len(row)] = row
    return Tensor(name=name, datatype=datatype, data=data)


def stacked_text(name: str, rows: Sequence[Sequence[str]]) -> Tensor:
    """BYTES (N, M) of UTF-8 from N rows of up to M texts each; places not in use are empty."""
    longest = max((len(row) for row in rows), default=0)
    data = np.full((len(rows), longest), b"", object)
    for place, row in zip(data, rows, strict=True):
        place[: len(row)] = [text.encode() for text in row]
    return Tensor(name=name, datatype=Datatype.BYTES, data=data)
