"""Named tensors: arrays of numbers, or opaque BYTES elements.

The datatypes and their sizes come from the Open Inference Protocol ("Tensor Data Types").
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray


class Datatype(StrEnum):
    """An element type of the Open Inference Protocol. NumPy has no BF16: arrays hold its bits as UINT16.

    Attributes:
        dtype: the NumPy dtype of one element; `object` for BYTES.
        has_json_form: whether JSON can hold its elements; 16-bit floating-point numbers are sent as bytes only.
        kind: NumPy's kind, ``b`` boolean, ``u`` unsigned, ``i`` signed, ``f`` floating, ``O`` for BYTES.
    """

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BF16 = "BF16"
    BYTES = "BYTES"

    def __init__(self, name: str) -> None:
        numpy_names = {"BF16": "uint16", "BYTES": "object"}
        self.dtype: np.dtype[Any] = np.dtype(numpy_names.get(name, name.lower().replace("fp", "float")))
        self.has_json_form = name not in ("FP16", "BF16")
        self.kind = "f" if name == "BF16" else self.dtype.kind


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A declared input or output tensor of a model; -1 in `shape` is a dimension of any size."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]

    def accepts(self, shape: Sequence[int]) -> bool:
        """Return whether a tensor of this shape is allowed."""
        return fits_shape(shape, self.shape)


def fits_shape(shape: Sequence[int], expected_shape: Sequence[int]) -> bool:
    """Return whether `shape` has the sizes of `expected_shape`, in which -1 is any size."""
    return len(shape) == len(expected_shape) and all(
        expected in (-1, side) for expected, side in zip(expected_shape, shape, strict=True)
    )


class Element(Protocol):
    """One BYTES element. Its protocol decodes it as binary data or text; the task chooses which."""

    def binary(self) -> bytes:
        """Return the element as binary data, such as an encoded image. Raise INVALID_REQUEST if it is text."""
        ...

    def text(self) -> str:
        """Return the element as text. Raise INVALID_REQUEST if it is not text."""
        ...


class Tensor(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A tensor of numbers, booleans or BYTES: `data` has its datatype's dtype; for BYTES, `object` for `bytes`."""

    name: str
    datatype: Datatype
    data: NDArray[Any]
    parameters: Mapping[str, object] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of `data`."""
        return self.data.shape

    @property
    def values(self) -> NDArray[Any]:
        """Return `data`, for BF16 as FP32 numbers."""
        return from_bfloat16_bits(self.data) if self.datatype is Datatype.BF16 else self.data


def from_bfloat16_bits(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the exact FP32 values of BF16 `bits`."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


class BytesTensor(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A tensor of BYTES elements.

    `shape` is the declared shape and is not compared with the number of elements: real clients declare an image's
    height, width and channels for one encoded element.
    """

    name: str
    shape: tuple[int, ...]
    elements: Sequence[Element]
    parameters: Mapping[str, object] = {}


InputTensor = Tensor | BytesTensor


def count_tensor(name: str, rows: Sequence[Sequence[object]]) -> Tensor:
    """Return INT32 (N,): the length of each row."""
    return Tensor(name=name, datatype=Datatype.INT32, data=np.array(list(map(len, rows)), np.int32))


class Labelled(Protocol):
    """A prediction of labels and their scores."""

    @property
    def labels(self) -> Sequence[str]: ...

    @property
    def scores(self) -> NDArray[np.float32]: ...


def stack_labelled(count_name: str, predictions: Sequence[Labelled]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of labels INT32 (N,) as `count_name`, `labels` BYTES (N, M) and `scores` FP32 (N, M)."""
    labels = [prediction.labels for prediction in predictions]
    scores = stack_numbers("scores", [prediction.scores for prediction in predictions])
    return count_tensor(count_name, labels), stack_text("labels", labels), scores


def stack_numbers(name: str, rows: Sequence[NDArray[Any]], datatype: Datatype = Datatype.FP32) -> Tensor:
    """Return (N, M, ...) of `datatype` from N arrays of the same rank and up to M entries, padded with 0."""
    sides = [max(lengths) for lengths in zip(*(row.shape for row in rows), strict=True)] if rows else [0]
    data = np.zeros((len(rows), *sides), datatype.dtype)
    for padded_row, row in zip(data, rows, strict=True):
        padded_row[tuple(map(slice, row.shape))] = row
    return Tensor(name=name, datatype=datatype, data=data)


def stack_text(name: str, rows: Sequence[Sequence[str]]) -> Tensor:
    """Return BYTES (N, M) of UTF-8 from N rows of up to M texts, padded with empty texts."""
    max_length = max(map(len, rows), default=0)
    data = np.full((len(rows), max_length), b"", object)
    for padded_row, row in zip(data, rows, strict=True):
        padded_row[: len(row)] = [text.encode() for text in row]
    return Tensor(name=name, datatype=Datatype.BYTES, data=data)
