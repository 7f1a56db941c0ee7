"""Write tensors as JSON text in the real server's format (tensorflow/serving, `json_tensor.cc`).

Arrays are on one line, objects on several lines, with four spaces for each level.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pybase64
from numpy.typing import NDArray

from app.protocols.tensorflow_serving.dtypes import short_name
from tasks.inference.error import invalid
from tasks.inference.tensor import Datatype, Tensor

__all__ = ("array_text", "decimals", "document_text", "object_text", "string_text", "tensor_texts")

_BYTES_SUFFIX = "_bytes"
_EXACT_FORMATS = {np.dtype(np.float32): ".9g", np.dtype(np.float64): ".17g"}
"""Formats with enough digits to read back the same number."""

_UNSUPPORTED = frozenset({Datatype.FP16, Datatype.BF16, Datatype.UINT16})


def decimals(values: NDArray[Any]) -> list[str]:
    """Return floating-point numbers with six digits, or with all digits if six do not read back as the same number.

    Whole numbers end in ``.0``; special values are NaN, Infinity and -Infinity.

    Args:
        values: (N,) float32 or float64.
    """
    numbers: list[float] = values.tolist()
    texts = [f"{number:g}" for number in numbers]
    read_back = np.array([float(text) for text in texts], np.float64)
    with np.errstate(over="ignore", under="ignore"):
        differing = np.flatnonzero(read_back.astype(values.dtype) != values)
    exact_format = _EXACT_FORMATS[values.dtype]
    for index in differing.tolist():
        texts[index] = format(numbers[index], exact_format)
    texts = [text if "." in text or "e" in text else f"{text}.0" for text in texts]
    for index in np.flatnonzero(~np.isfinite(values)).tolist():
        number = numbers[index]
        texts[index] = "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    return texts


def tensor_texts(tensor: Tensor, *, rows: bool) -> list[str]:
    """Return the text of each row of a tensor, or, without `rows`, one text of the whole tensor.

    Raises:
        InferenceError: INVALID_REQUEST for a datatype that this protocol's JSON cannot hold.
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
    """Return an array on one line."""
    return f"[{', '.join(texts)}]"


def object_text(members: Mapping[str, str], level: int) -> str:
    """Return an object with one member on each line, at depth `level`."""
    line = "\n" + "    " * level
    lines = [f"{line}    {string_text(name)}: {text}" for name, text in members.items()]
    return f"{{{','.join(lines)}{line}}}"


def document_text(name: str, text: str) -> bytes:
    """Return the body: an object with one member."""
    return object_text({name: text}, 0).encode()


def string_text(text: str) -> str:
    """Return a string in quotes."""
    return msgspec.json.encode(text).decode()


def _leaves(tensor: Tensor) -> list[str]:
    flat = tensor.data.ravel()
    if tensor.datatype in _UNSUPPORTED:
        raise _unsupported(tensor)
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
        raise _unsupported(tensor) from None


def _unsupported(tensor: Tensor) -> Exception:
    return invalid(f"Failed to write JSON value for tensor type: {short_name(tensor.datatype)}")
