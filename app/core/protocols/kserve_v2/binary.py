"""V2's binary tensor data extension (Triton's extension_binary_data): tensors as bytes after the JSON.

Numbers are little-endian and row-major. A BOOL is one byte, 0 or 1. Four bytes with its length precede each BYTES
element.
"""

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pybase64
from numpy.typing import NDArray

from app.core.wire.bytes_elements import BinaryElement
from app.core.wire.data_url import decode_data_url, media_type_of
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import too_large
from tasks.inference.request import read_parameters
from tasks.inference.tensor import BytesTensor, Datatype, Element, InputTensor, Tensor

_LENGTH = struct.Struct("<I")
_SHARED_MEMORY = ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")

_PEEK_BYTES = 64
_MICROSECONDS = 1_000_000
_MAX_DAYS = 30


class SniffedElement(BinaryElement, frozen=True):
    """A BYTES element received as bytes: an encoded image, base64 of one, or text."""

    def binary(self) -> bytes:
        """Return the bytes; of base64 or a data URL, the decoded bytes."""
        if media_type_of(self.data[:_PEEK_BYTES].decode("latin-1")) is not None:
            try:
                return decode_data_url(self.data.decode("latin-1"))
            except InferenceError:
                return self.data
        try:
            return pybase64.b64decode(self.data, validate=True) if self.data else b""
        except ValueError:
            return self.data


def split_body(body: bytes, header_length: str | None) -> tuple[bytes | None, memoryview]:
    """Return the JSON and the bytes after it; None for the JSON when the header's length is 0.

    Raise INVALID_REQUEST when the header is not a number, or exceeds the body.
    """
    if header_length is None:
        return body, memoryview(b"")
    header_name = "Inference-Header-Content-Length"
    if not header_length.isascii() or not header_length.isdecimal():
        raise invalid(f"Expected the number of bytes of the JSON, got {header_length!r}", header_name)
    length = int(header_length[:20])
    if length > len(body):
        raise invalid(f"Expected at most the {len(body)} bytes of the body, got {length}", header_name)
    view = memoryview(body)
    return (None if length == 0 else body[:length]), view[length:]


def bytes_tensor(
    name: str, shape: Sequence[int], elements: Sequence[Element], parameters: Mapping[str, object], path: str
) -> BytesTensor:
    """Return a BYTES tensor of `elements`. Call `check_shape` first.

    Raise INVALID_REQUEST naming the shape under `path`, when it does not fit the number of elements.
    """
    if math.prod(shape) != len(elements):
        message = f"Expected a shape for the {len(elements)} elements in data, got {quote_value(list(shape))}"
        raise invalid(message, f"{path}.shape")
    return BytesTensor(name=name, shape=tuple(shape), elements=elements, parameters=parameters)


def reject_shared_memory(parameters: Collection[str], path: str) -> None:
    """Reject parameters of Triton's shared-memory extension: clients that set them ignore the data in the response.

    Raise INVALID_REQUEST naming the parameter under `path`.
    """
    for name in _SHARED_MEMORY:
        if name in parameters:
            message = "Expected tensors in the request and response; shared memory is not supported"
            raise invalid(message, f"{path}.{name}")


def unpack_numbers(data: memoryview | bytes, datatype: Datatype, shape: Sequence[int], path: str) -> NDArray[Any]:
    """Return an array that shares memory with `data`. Call `check_shape` first.

    Raise INVALID_REQUEST when the size does not fit the shape.
    """
    dtype = datatype.dtype
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise invalid(f"Expected {expected} bytes for {datatype} of shape {list(shape)}, got {len(data)}", path)
    if datatype is Datatype.BOOL and np.any(np.frombuffer(data, np.uint8) > 1):
        raise invalid("Expected bytes of 0 or 1, got another", path)
    return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)


def unpack_bytes(data: memoryview | bytes, path: str, max_elements: int) -> list[Element]:
    """Return the elements of a BYTES tensor, at most `max_elements`.

    Raise INVALID_REQUEST when a length reaches past the end; TOO_LARGE for more elements.
    """
    elements: list[Element] = []
    view, position = memoryview(data), 0
    while position < len(view):
        if len(elements) == max_elements:
            raise too_large(max_elements, "BYTES elements in one tensor (--max-entries)", path=path)
        start = position + _LENGTH.size
        if start > len(view):
            raise invalid(f"Expected a length of 4 bytes at byte {position}, got {len(view) - position}", path)
        end = start + _LENGTH.unpack_from(view, position)[0]
        if end > len(view):
            raise invalid(f"Expected an element of {end - start} bytes at byte {start}, got {len(view) - start}", path)
        elements.append(SniffedElement(bytes(view[start:end])))
        position = end
    return elements


def binary_tensor(
    name: str,
    datatype: Datatype,
    shape: Sequence[int],
    data: memoryview | bytes,
    parameters: Mapping[str, object],
    path: str,
    data_path: str,
    max_elements: int,
) -> InputTensor:
    """Return the input of `shape` whose bytes are `data`. Call `check_shape` first.

    Raise INVALID_REQUEST naming the shape under `path`, or `data_path`; TOO_LARGE as `unpack_bytes`.
    """
    if datatype is Datatype.BYTES:
        return bytes_tensor(name, shape, unpack_bytes(data, data_path, max_elements), parameters, path)
    numbers = unpack_numbers(data, datatype, shape, data_path)
    return Tensor(name=name, datatype=datatype, data=numbers, parameters=parameters)


def pack(tensor: Tensor) -> bytes:
    """Return a tensor's bytes, as they follow the JSON or fill an entry of gRPC's raw contents."""
    if tensor.datatype is Datatype.BYTES:
        return b"".join(_LENGTH.pack(len(element)) + element for element in tensor.data.ravel())
    return np.ascontiguousarray(tensor.data, tensor.data.dtype.newbyteorder("<")).tobytes()


class _Parameters(msgspec.Struct, frozen=True):
    timeout: Annotated[int, msgspec.Meta(ge=0, le=_MAX_DAYS * 24 * 3600 * _MICROSECONDS)] = 0


def read_timeout(parameters: Mapping[str, object]) -> float | None:
    """Return Triton's ``timeout`` in seconds, from microseconds in the request; None when it is absent or 0.

    Raise INVALID_REQUEST for values other than an integer of at most 30 days.
    """
    microseconds = read_parameters(_Parameters, parameters).timeout
    return microseconds / _MICROSECONDS if microseconds else None
