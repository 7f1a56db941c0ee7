"""JSON text of tensors, as the real server writes it (tensorflow/serving, `json_tensor.cc`).

Arrays stand on one line and objects on several, four spaces a level.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pybase64
from numpy.typing import NDArray

from app.protocols.tensorflow_serving.dtypes import short_name
from tasks.exchange.error import invalid
from tasks.exchange.tensor import Datatype, Tensor

__all__ = ("array_text", "decimals", "document_text", "object_text", "string_text", "tensor_texts")

_BYTES_SUFFIX = "_bytes"
_FULL_DIGITS = {np.dtype(np.float32): ".9g", np.dtype(np.float64): ".17g"}
"""Formats with as many digits as it takes for a number to be read back as it was."""

_UNWRITTEN = frozenset({Datatype.FP16, Datatype.BF16, Datatype.UINT16})


def decimals(values: NDArray[Any]) -> list[str]:
    """Floating-point numbers in six digits, or in all where six do not read back as the same number.

    Whole numbers get ``.0``; what is not finite is NaN, Infinity or -Infinity.

    Args:
        values: (N,) float32 or float64.
    """
    numbers: list[float] = values.tolist()
    texts = [f"{number:g}" for number in numbers]
    read_back = np.array([float(text) for text in texts], np.float64)
    with np.errstate(over="ignore", under="ignore"):
        differing = np.flatnonzero(read_back.astype(values.dtype) != values)
    full = _FULL_DIGITS[values.dtype]
    for index in differing.tolist():
        texts[index] = format(numbers[index], full)
    texts = [text if "." in text or "e" in text else f"{text}.0" for text in texts]
    for index in np.flatnonzero(~np.isfinite(values)).tolist():
        number = numbers[index]
        texts[index] = "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    return texts


def tensor_texts(tensor: Tensor, *, rows: bool) -> list[str]:
    """The texts of a tensor's rows, or, as the only one, that of the whole tensor.

    Raises:
        InferenceError: INVALID_REQUEST for a datatype that has no form in this protocol's JSON.
    """
    texts = _leaves(tensor)
    shape = tensor.shape
    for level in range(len(shape) - 1, 0 if rows else -1, -1):
        size = shape[level]
        if size:
            texts = [array_text(texts[start : start + size]) for start in range(0, len(texts), size)]
        else:
            texts = ["[]"] * int(np.prod(shape[:level], dtype=np.int64))
    return texts


def array_text(texts: Sequence[str]) -> str:
    """An array on one line."""
    return f"[{', '.join(texts)}]"


def object_text(members: Mapping[str, str], level: int) -> str:
    """An object, one member on a line, that stands `level` levels below the top."""
    line = "\n" + "    " * level
    lines = [f"{line}    {string_text(name)}: {text}" for name, text in members.items()]
    return f"{{{','.join(lines)}{line}}}"


def document_text(name: str, text: str) -> bytes:
    """The whole answer: an object with one member."""
    return object_text({name: text}, 0).encode()


def string_text(text: str) -> str:
    """A string in quotes."""
    return msgspec.json.encode(text).decode()


def _leaves(tensor: Tensor) -> list[str]:
    flat = tensor.data.ravel()
    if tensor.datatype in _UNWRITTEN:
        raise _unwritten(tensor)
    if tensor.datatype is Datatype.BYTES:
        return _string_leaves(tensor, flat.tolist())
    if tensor.datatype.kind == "f":
        return decimals(flat)
    if tensor.datatype is Datatype.BOOL:
        return ["true" if value else "false" for value in flat.tolist()]
    return list(map(str, flat.tolist()))


def _string_leaves(tensor: Tensor, elements: Sequence[bytes]) -> list[str]:
    if tensor.name.endswith(_BYTES_SUFFIX):
        return [f'{{"b64": "{pybase64.b64encode_as_string(element)}"}}' for element in elements]
    try:
        return [string_text(element.decode()) for element in elements]
    except UnicodeDecodeError:
        raise _unwritten(tensor) from None


def _unwritten(tensor: Tensor) -> Exception:
    return invalid(f"Failed to write JSON value for tensor type: {short_name(tensor.datatype)}")
