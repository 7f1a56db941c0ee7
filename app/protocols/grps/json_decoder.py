"""Decode `GrpsMessage` from JSON: proto3's JSON mapping with original field names, plus `ndarray`.

See https://protobuf.dev/programming-guides/json/ for the mapping. protobuf decodes everything except base64, where it
is lax, and long arrays of plain numbers, where it is slow.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from google.protobuf.json_format import ParseDict, ParseError

from app.protocols.bytes_elements import StringElement
from app.protocols.grps.messages import GrpsMessage, entry_path
from app.protocols.grps.ndarray import nested_numbers
from app.protocols.grps.tensors import FLAT_FIELDS
from app.protocols.json_body import read_json
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import Limits

__all__ = ("read_json_message",)

_LOCATION = re.compile(r' at "?GrpsMessage\.?(?P<path>[\w.\[\]]*?)"?\.*$')
_FIELD = re.compile(r"^Failed to parse (?P<field>\w+) field: ")
_UNKNOWN = re.compile(r'has no field named "(?P<name>.*?)" at "GrpsMessage\.?(?P<path>[^"]*)"', re.DOTALL)
_PARENTS = {"tensors": "gtensors", "code": "status", "msg": "status"}
_DATA = ("str_data", "bin_data", "gtensors", "ndarray", "gmap")
_MAX_INTEGER_DIGITS = len(str(np.iinfo(np.int64).min))
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read_json_message(body: bytes, limits: Limits | None = None) -> tuple[Any, bool]:
    """Decode a body within `limits`; also return whether its tensor came as `ndarray`.

    Raises:
        InferenceError: INVALID_REQUEST naming the unknown or invalid field; as `check_json`.
    """
    content = read_json(body, dict[str, Any], limits=limits)
    data = {name: value for name in _DATA if (value := _pop_field(content, name)) is not None}
    if len(data) > 1:
        first, second, *_ = data
        raise invalid(f"Expected one kind of data, got {first} as well", second)
    if "bin_data" in data:
        raise invalid("Expected binary data as the body, with the content type application/octet-stream", "bin_data")
    if "ndarray" in data:
        return _from_ndarray(content, data["ndarray"]), True
    numbers = _pop_numbers(data.get("gtensors"))
    binaries = _pop_binaries(data.get("gmap"))
    message = _parse({**content, **data})
    for index, field, values in numbers:
        getattr(message.gtensors.tensors[index], field).extend(values)
    for name, binary in binaries.items():
        message.gmap.s_b[name] = binary
    return message, False


def _from_ndarray(content: dict[str, Any], value: object) -> Any:
    numbers = nested_numbers(value, "ndarray")
    message = _parse(content)
    message.gtensors.tensors.add(dtype=7, shape=numbers.shape, flat_float32=numbers.ravel().tolist())
    return message


def _pop_field(content: dict[str, Any], name: str) -> Any:
    """Remove a field from an object and return it, by its original name or its name in camel case.

    Raises:
        InferenceError: INVALID_REQUEST when both names are present.
    """
    camel = _camel(name)
    value = content.pop(name, None)
    if camel not in content:
        return value
    if value is not None:
        raise _duplicate_field(name, name)
    return content.pop(camel)


def _check_object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid(f"Expected an object, got {quote_value(value)}", path)
    return cast("dict[str, Any]", value)


def _duplicate_field(name: str, path: str) -> InferenceError:
    return invalid(f"Expected a field once, got it as {name} and as {_camel(name)}", path)


def _camel(name: str) -> str:
    """Return the name of a field in protobuf's JSON, in camel case."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def _pop_numbers(gtensors: object) -> Sequence[tuple[int, str, Sequence[Any]]]:
    """Remove every array of plain numbers in range. Return the tensor's index, the field, and the numbers of each."""
    if gtensors is None:
        return []
    tensors: object = _check_object(gtensors, "gtensors").get("tensors")
    if tensors is None:
        return []
    if not isinstance(tensors, list):
        raise invalid(f"Expected an array, got {quote_value(tensors)}", "gtensors.tensors")
    plain_arrays: list[tuple[int, str, Sequence[Any]]] = []
    for index, content in enumerate(cast("list[object]", tensors)):
        tensor = _check_object(content, f"gtensors.tensors[{index}]")
        if isinstance(tensor.get("dtype"), bool):
            raise invalid("Expected the name or number of a type, got a boolean", f"gtensors.tensors[{index}].dtype")
        for field, wire in FLAT_FIELDS.items():
            values = tensor.get(field)
            if values is not None and tensor.get(_camel(field)) is not None:
                raise _duplicate_field(field, f"gtensors.tensors[{index}].{field}")
            if isinstance(values, list) and (
                plain_values := _PLAIN_READERS[wire.stored_dtype.kind](cast("list[Any]", values), wire.stored_dtype)
            ):
                del tensor[field]
                plain_arrays.append((index, field, plain_values))
    return plain_arrays


def _plain_integers(values: list[Any], stored_dtype: np.dtype[Any]) -> Sequence[int] | None:
    types = set(map(type, values))
    if types == {str} and stored_dtype.itemsize == 8:
        return _parse_integers(values, stored_dtype)
    if types != {int}:
        return None
    try:
        np.array(values, stored_dtype)
    except OverflowError:
        return None
    return values


def _parse_integers(values: list[str], stored_dtype: np.dtype[Any]) -> Sequence[int] | None:
    """Parse 64-bit integers in strings, the form of proto3."""
    # NumPy makes every element of a text array as wide as the longest one.
    if max(map(len, values)) > _MAX_INTEGER_DIGITS:
        return None
    try:
        numbers = np.array(values).astype(stored_dtype).tolist()
    except (ValueError, OverflowError):
        return None
    return numbers if list(map(str, numbers)) == values else None


def _plain_floats(values: list[Any], stored_dtype: np.dtype[Any]) -> Sequence[float] | None:
    types = set(map(type, values))
    if str in types:
        values = [_NOT_FINITE.get(value, value) if type(value) is str else value for value in values]
        types = set(map(type, values))
    if not types <= {int, float}:
        return None
    try:
        numbers = np.array(values, np.float64)
    except OverflowError:
        return None
    # Check the range here: protobuf rejects even its own rounded output for the largest number.
    with np.errstate(over="ignore"):
        in_range = not np.any(np.isfinite(numbers) & ~np.isfinite(numbers.astype(stored_dtype)))
    return values if in_range else None


def _not_plain(values: list[Any], stored_dtype: np.dtype[Any]) -> None:
    del values, stored_dtype


_PLAIN_READERS: dict[str, Callable[[list[Any], np.dtype[Any]], Sequence[Any] | None]] = {
    "u": _plain_integers,
    "i": _plain_integers,
    "f": _plain_floats,
    "O": _not_plain,
}


def _pop_binaries(gmap: object) -> Mapping[str, bytes]:
    """Remove the values of `s_b`, and decode them from base64."""
    if gmap is None:
        return {}
    values = _pop_field(_check_object(gmap, "gmap"), "s_b")
    if values is None:
        return {}
    return {name: _binary(value, entry_path("s_b", name)) for name, value in _check_object(values, "gmap.s_b").items()}


def _binary(value: object, path: str) -> bytes:
    if not isinstance(value, str):
        raise invalid(f"Expected base64, got {quote_value(value)}", path)
    try:
        return StringElement(value).binary()
    except InferenceError as error:
        raise error.with_prefix(path) from None


def _parse(content: dict[str, Any]) -> Any:
    try:
        return ParseDict(content, GrpsMessage())
    except ParseError as error:
        raise _parse_error(str(error)) from None
    except OverflowError:
        raise invalid("Expected numbers of 64 bits at most, got a larger one") from None


def _parse_error(text: str) -> InferenceError:
    """Turn protobuf's error text into an error with a path, as far as the text has one."""
    unknown = _UNKNOWN.search(text)
    if unknown is not None:
        path = ".".join(part for part in (unknown["path"], _truncated(unknown["name"])) if part)
        return invalid("No such field is known", path)
    steps: list[str] = []
    while step := _FIELD.match(text):
        steps.append(step["field"])
        text = text[step.end() :]
    location = _LOCATION.search(text)
    if location is not None:
        text = text[: location.start()]
    if steps and steps[0] not in ("model", "str_data", "status", "gtensors", "gmap"):
        steps.insert(0, _PARENTS.get(steps[0], "gmap"))
    path = (location["path"] if location is not None else "") or ".".join(steps)
    if location is not None and steps and re.search(rf"\b{steps[-1]}(\[\d+\])?$", path) is None:
        path = f"{path}.{steps[-1]}"
    return invalid(_truncated(text.rstrip(".")), path)


def _truncated(text: str) -> str:
    """Return `text`, which may quote the client, with at most 160 characters."""
    return text if len(text) <= 160 else f"{text[:160]}..."
