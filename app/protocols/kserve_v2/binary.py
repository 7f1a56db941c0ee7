"""The binary tensor data extension of V2 (Triton's extension_binary_data): tensors as bytes after the JSON.

Numbers are little-endian and row-major, BOOL is a byte of 0 or 1, each BYTES element comes after its length in four
bytes.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pybase64
from numpy.typing import NDArray

from tasks.exchange.error import brief, invalid
from tasks.exchange.limits import beyond
from tasks.exchange.tensor import Datatype, Element, Tensor

__all__ = ("SniffedElement", "check_shape", "pack", "split_body", "unpack_bytes", "unpack_numbers")

_LENGTH = struct.Struct("<I")
_MOST_DIMENSIONS = 32


class SniffedElement:
    """A BYTES element that came as bytes: an encoded image, or base64 or text that a client encoded first.

    Args:
        data: the element, without its length.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data

    def binary(self) -> bytes:
        """The bytes, or what they decode to where all of them are base64, with or without a data URI in front."""
        encoded = self._data
        if encoded.startswith(b"data:"):
            encoded = encoded.partition(b",")[2]
        try:
            return pybase64.b64decode(encoded, validate=True) if encoded else b""
        except ValueError:
            return self._data

    def text(self) -> str:
        """The bytes as UTF-8."""
        try:
            return self._data.decode()
        except UnicodeDecodeError:
            raise invalid("Expected text in UTF-8, got other bytes") from None


def split_body(body: bytes, header_length: str | None) -> tuple[bytes | None, memoryview]:
    """The JSON and what follows it; None for the JSON when the header says that there is none (length 0).

    Raises:
        InferenceError: INVALID_REQUEST when the header is no number, or larger than the body.
    """
    if header_length is None:
        return body, memoryview(b"")
    where = "Inference-Header-Content-Length"
    if not header_length.isascii() or not header_length.isdecimal():
        raise invalid(f"Expected the number of bytes of the JSON, got {header_length!r}", where)
    length = int(header_length[:20])
    if length > len(body):
        raise invalid(f"Expected at most the {len(body)} bytes of the body, got {length}", where)
    view = memoryview(body)
    return (None if length == 0 else body[:length]), view[length:]


def check_shape(shape: Sequence[int], path: str) -> None:
    """Refuse a shape that no array has, before its sizes are multiplied: a long one has a product of megabytes.

    Raises:
        InferenceError: INVALID_REQUEST naming the field.
    """
    if len(shape) > _MOST_DIMENSIONS:
        raise invalid(f"Expected at most {_MOST_DIMENSIONS} dimensions, got {len(shape)}", path)
    if any(size < 0 for size in shape):
        raise invalid(f"Expected sizes of 0 or more, got {brief(list(shape))}", path)


def unpack_numbers(data: memoryview | bytes, datatype: Datatype, shape: Sequence[int], path: str) -> NDArray[Any]:
    """An array over `data` itself, nothing copied; `check_shape` has seen the shape.

    Raises:
        InferenceError: INVALID_REQUEST when the size does not fit the shape.
    """
    dtype = datatype.dtype
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise invalid(f"Expected {expected} bytes for {datatype} of shape {list(shape)}, got {len(data)}", path)
    if datatype is Datatype.BOOL and np.any(np.frombuffer(data, np.uint8) > 1):
        raise invalid("Expected bytes of 0 or 1, got another", path)
    try:
        return np.frombuffer(data, dtype.newbyteorder("<")).reshape(tuple(shape))
    except (ValueError, OverflowError):
        raise invalid(f"Expected sizes that can be counted, got {brief(list(shape))}", path) from None


def unpack_bytes(data: memoryview | bytes, path: str, most: int | None = None) -> list[Element]:
    """The elements of a BYTES tensor, of which there may be `most`.

    Raises:
        InferenceError: INVALID_REQUEST when a length reaches past the end; TOO_LARGE for more elements.
    """
    elements: list[Element] = []
    view, position = memoryview(data), 0
    while position < len(view):
        if most is not None and len(elements) == most:
            raise beyond(most, "BYTES elements in one tensor", path=path)
        start = position + _LENGTH.size
        if start > len(view):
            raise invalid(f"Expected a length of 4 bytes at byte {position}, got {len(view) - position}", path)
        end = start + _LENGTH.unpack_from(view, position)[0]
        if end > len(view):
            raise invalid(f"Expected an element of {end - start} bytes at byte {start}, got {len(view) - start}", path)
        elements.append(SniffedElement(bytes(view[start:end])))
        position = end
    return elements


def pack(tensor: Tensor) -> bytes:
    """A tensor as it follows the JSON, or as an entry of gRPC's raw contents."""
    if tensor.datatype is Datatype.BYTES:
        return b"".join(_LENGTH.pack(len(each)) + each for each in tensor.data.ravel())
    return np.ascontiguousarray(tensor.data, tensor.data.dtype.newbyteorder("<")).tobytes()
