"""Read JSON as leniently as the real server, convert nested values to tensors with its checks, and tensors to values.

The real server accepts NaN and ignores the data after the first value. The rules for tensors come from
tensorflow/serving, `json_tensor.cc`.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.protocols.kserve_v1.base64_objects import base64_object, nested_elements
from app.core.wire.json_body import check_json
from app.core.wire.json_tensors import check_shape, index_path, shape_and_values
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype, InputTensor, Tensor

_BYTES_SUFFIX = "_bytes"
_INT32 = (-(2**31), 2**31 - 1)
_INT32_CHECKED = frozenset({Datatype.INT8, Datatype.INT16, Datatype.INT32, Datatype.UINT8})
"""Checked only against the range of INT32. Narrower datatypes keep the lowest bits, as in the real server."""

_RANGES = {
    Datatype.INT64: (-(2**63), 2**63 - 1),
    Datatype.UINT32: (0, 2**32 - 1),
    Datatype.UINT64: (0, 2**64 - 1),
    **dict.fromkeys(_INT32_CHECKED, _INT32),
}
_ACCEPTED_TYPES: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
_UNSUPPORTED = frozenset({Datatype.FP16, Datatype.BF16, Datatype.UINT16})

_MAX_DIGITS = 400
"""Longer integers exceed every floating-point number."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_tensor(name: str, datatype: Datatype, value: object) -> InputTensor:
    """Return `value` as a tensor whose shape is its nesting.

    Raise INVALID_REQUEST naming the first invalid value; UNSUPPORTED for a datatype that JSON cannot hold.
    """
    shape: tuple[int, ...] = ()
    leaves: list[Any] = [value]
    if isinstance(value, list):
        shape, leaves = shape_and_values(cast("list[Any]", value), name)
    check_shape(shape, name)
    if datatype is Datatype.BYTES:
        return nested_elements(name, shape, leaves, name)
    if datatype in _UNSUPPORTED and leaves:
        raise InferenceError(ErrorKind.UNSUPPORTED, f"{datatype} has no form in JSON; use gRPC", name)
    return Tensor(name=name, datatype=datatype, data=_numbers(name, datatype, shape, leaves).reshape(shape))


def json_value(tensor: Tensor) -> Any:
    """Return the values of a tensor as nested lists.

    Bytes are text, or base64 objects if the name of the tensor ends in `_bytes`. Raise INVALID_REQUEST for values that
    this protocol's JSON cannot hold.
    """
    if tensor.datatype in _UNSUPPORTED:
        raise invalid(f"{tensor.datatype} has no form in JSON; use gRPC", tensor.name)
    if tensor.datatype is not Datatype.BYTES:
        return tensor.data.tolist()
    write = base64_object if tensor.name.endswith(_BYTES_SUFFIX) else bytes.decode
    try:
        texts = [write(element) for element in tensor.data.ravel()]
    except UnicodeDecodeError:
        raise invalid("The output holds bytes that are not text; use gRPC", tensor.name) from None
    return np.array(texts, object).reshape(tensor.shape).tolist()


def json_document(name: str, value: object) -> bytes:
    """Return the body: an object with one member. NaN and Infinity are written by their names, as clients expect."""
    return json.dumps({name: value}, ensure_ascii=False).encode()


def _numbers(name: str, datatype: Datatype, shape: Sequence[int], leaves: Sequence[Any]) -> NDArray[Any]:
    accepted, (low, high) = _ACCEPTED_TYPES[datatype.kind], _RANGES.get(datatype, (None, None))

    def is_valid(leaf: Any) -> bool:
        return type(leaf) in accepted and (low is None or high is None or low <= leaf <= high)

    # The types and the extremes decide for all numbers at once.
    is_accepted = set(map(type, leaves)) <= accepted
    if is_accepted and leaves and datatype in _RANGES:
        is_accepted = is_valid(min(leaves)) and is_valid(max(leaves))
    if not is_accepted:
        index, leaf = next((index, leaf) for index, leaf in enumerate(leaves) if not is_valid(leaf))
        raise invalid(f"Expected {datatype} numbers, got {quote_value(leaf)}", name + index_path(index, shape))
    wide_dtype = np.float64 if datatype.kind == "f" else np.int64 if datatype in _INT32_CHECKED else datatype.dtype
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return np.array(leaves, wide_dtype).astype(datatype.dtype)
    except OverflowError:
        raise invalid(f"Expected {datatype} numbers, got one out of range", name) from None


def read_object(body: bytes, limits: Limits | None = None) -> dict[str, object]:
    """Parse the JSON object at the start of `body`. The rest is ignored, but counts for the `limits`.

    Raise INVALID_REQUEST; as `check_json`.
    """
    if limits is not None:
        check_json(body, limits)
    try:
        document: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = _read_leniently(body)
    if not isinstance(document, dict):
        raise invalid(f"Expected a JSON object, got {quote_value(document)}")
    return cast("dict[str, object]", document)


def _read_leniently(body: bytes) -> object:
    text = body.removeprefix(_BYTE_ORDER_MARK).decode(errors="surrogateescape").lstrip(" \t\r\n")
    try:
        value, _ = _DECODER.raw_decode(text)
        # Half of a surrogate pair, and bytes that are not UTF-8, are errors within the value only.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise invalid(f"The body is not valid JSON: {error}") from None
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("Number too big to be stored in double.")
    return number


_DECODER = json.JSONDecoder(
    parse_float=_finite, parse_int=lambda text: int(text) if len(text) <= _MAX_DIGITS else _finite(text)
)
