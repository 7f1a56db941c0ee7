"""`GrpsMessage` from JSON: proto3's mapping with the fields' own names, and `ndarray`, which only exists there.

https://protobuf.dev/programming-guides/json/ tells the mapping. protobuf does it, all but what it is lax with or slow
at: base64, and long arrays of plain numbers.
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
from tasks.exchange.error import InferenceError, brief, invalid
from tasks.exchange.limits import Limits

__all__ = ("read_json_message",)

_AT = re.compile(r' at "?GrpsMessage\.?(?P<path>[\w.\[\]]*?)"?\.*$')
_STEP = re.compile(r"^Failed to parse (?P<field>\w+) field: ")
_UNKNOWN = re.compile(r'has no field named "(?P<name>.*?)" at "GrpsMessage\.?(?P<path>[^"]*)"', re.DOTALL)
_ABOVE = {"tensors": "gtensors", "code": "status", "msg": "status"}
_DATA = ("str_data", "bin_data", "gtensors", "ndarray", "gmap")
_LONGEST_INTEGER = len(str(np.iinfo(np.int64).min))
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read_json_message(body: bytes, limits: Limits | None = None) -> tuple[Any, bool]:
    """Read a body of no more JSON than `limits` allow, and whether its tensor came as `ndarray`.

    Raises:
        InferenceError: INVALID_REQUEST naming the field that is unknown, or does not fit; as `check_json`.
    """
    content = read_json(body, dict[str, Any], limits=limits)
    data = {name: value for name in _DATA if (value := _taken(content, name)) is not None}
    if len(data) > 1:
        first, second, *_ = data
        raise invalid(f"Expected one kind of data, got {first} as well", second)
    if "bin_data" in data:
        raise invalid("Expected binary data as the body, with the content type application/octet-stream", "bin_data")
    if "ndarray" in data:
        return _from_ndarray(content, data["ndarray"]), True
    numbers = _numbers_taken(data.get("gtensors"))
    binaries = _binaries_taken(data.get("gmap"))
    message = _parsed({**content, **data})
    for index, field, values in numbers:
        getattr(message.gtensors.tensors[index], field).extend(values)
    for name, data in binaries.items():
        message.gmap.s_b[name] = data
    return message, False


def _from_ndarray(content: dict[str, Any], value: object) -> Any:
    numbers = nested_numbers(value, "ndarray")
    message = _parsed(content)
    message.gtensors.tensors.add(dtype=7, shape=numbers.shape, flat_float32=numbers.ravel().tolist())
    return message


def _taken(content: dict[str, Any], name: str) -> Any:
    """Take a field out of an object, by its own name or the one that protobuf's JSON gives it.

    Raises:
        InferenceError: INVALID_REQUEST when it stands there by both.
    """
    camel = _camel(name)
    value = content.pop(name, None)
    if camel not in content:
        return value
    if value is not None:
        raise _twice(name, name)
    return content.pop(camel)


def _object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid(f"Expected an object, got {brief(value)}", path)
    return cast("dict[str, Any]", value)


def _twice(name: str, path: str) -> InferenceError:
    return invalid(f"Expected a field once, got it as {name} and as {_camel(name)}", path)


def _camel(name: str) -> str:
    """The name that protobuf's JSON gives a field."""
    head, *rest = name.split("_")
    return head + "".join(each.capitalize() for each in rest)


def _numbers_taken(gtensors: object) -> Sequence[tuple[int, str, Sequence[Any]]]:
    """Take out every array of nothing but plain numbers in range: its tensor, its field, its numbers."""
    if gtensors is None:
        return []
    tensors: object = _object(gtensors, "gtensors").get("tensors")
    if tensors is None:
        return []
    if not isinstance(tensors, list):
        raise invalid(f"Expected an array, got {brief(tensors)}", "gtensors.tensors")
    found: list[tuple[int, str, Sequence[Any]]] = []
    for index, each in enumerate(cast("list[object]", tensors)):
        tensor = _object(each, f"gtensors.tensors[{index}]")
        if isinstance(tensor.get("dtype"), bool):
            raise invalid("Expected the name or number of a type, got a boolean", f"gtensors.tensors[{index}].dtype")
        for field, wire in FLAT_FIELDS.items():
            values = tensor.get(field)
            if values is not None and tensor.get(_camel(field)) is not None:
                raise _twice(field, f"gtensors.tensors[{index}].{field}")
            if isinstance(values, list) and (plain := _PLAIN[wire.held.kind](cast("list[Any]", values), wire.held)):
                del tensor[field]
                found.append((index, field, plain))
    return found


def _plain_integers(values: list[Any], held: np.dtype[Any]) -> Sequence[int] | None:
    kinds = set(map(type, values))
    if kinds == {str} and held.itemsize == 8:
        return _written_integers(values, held)
    if kinds != {int}:
        return None
    try:
        np.array(values, held)
    except OverflowError:
        return None
    return values


def _written_integers(values: list[str], held: np.dtype[Any]) -> Sequence[int] | None:
    """64-bit integers as proto3 writes them, in strings."""
    # An array of texts is as wide as its longest, everywhere.
    if max(map(len, values)) > _LONGEST_INTEGER:
        return None
    try:
        numbers = np.array(values).astype(held).tolist()
    except (ValueError, OverflowError):
        return None
    return numbers if list(map(str, numbers)) == values else None


def _plain_floats(values: list[Any], held: np.dtype[Any]) -> Sequence[float] | None:
    kinds = set(map(type, values))
    if str in kinds:
        values = [_NOT_FINITE.get(each, each) if type(each) is str else each for each in values]
        kinds = set(map(type, values))
    if not kinds <= {int, float}:
        return None
    try:
        numbers = np.array(values, np.float64)
    except OverflowError:
        return None
    # protobuf refuses the greatest number as it writes it itself, rounded to a few digits.
    with np.errstate(over="ignore"):
        in_range = not np.any(np.isfinite(numbers) & ~np.isfinite(numbers.astype(held)))
    return values if in_range else None


def _none_plain(values: list[Any], held: np.dtype[Any]) -> None:
    del values, held


_PLAIN: dict[str, Callable[[list[Any], np.dtype[Any]], Sequence[Any] | None]] = {
    "u": _plain_integers,
    "i": _plain_integers,
    "f": _plain_floats,
    "O": _none_plain,
}


def _binaries_taken(gmap: object) -> Mapping[str, bytes]:
    """Take out the values of `s_b`, and read them as base64."""
    if gmap is None:
        return {}
    values = _taken(_object(gmap, "gmap"), "s_b")
    if values is None:
        return {}
    return {name: _binary(value, entry_path("s_b", name)) for name, value in _object(values, "gmap.s_b").items()}


def _binary(value: object, path: str) -> bytes:
    if not isinstance(value, str):
        raise invalid(f"Expected base64, got {brief(value)}", path)
    try:
        return StringElement(value).binary()
    except InferenceError as error:
        raise error.under(path) from None


def _parsed(content: dict[str, Any]) -> Any:
    try:
        return ParseDict(content, GrpsMessage())
    except ParseError as error:
        raise _explained(str(error)) from None
    except OverflowError:
        raise invalid("Expected numbers of 64 bits at most, got a larger one") from None


def _explained(text: str) -> InferenceError:
    """What protobuf has against a message, with the path in front as far as it tells one."""
    unknown = _UNKNOWN.search(text)
    if unknown is not None:
        path = ".".join(each for each in (unknown["path"], _shortened(unknown["name"])) if each)
        return invalid("No such field is known", path)
    steps: list[str] = []
    while step := _STEP.match(text):
        steps.append(step["field"])
        text = text[step.end() :]
    at = _AT.search(text)
    if at is not None:
        text = text[: at.start()]
    if steps and steps[0] not in ("model", "str_data", "status", "gtensors", "gmap"):
        steps.insert(0, _ABOVE.get(steps[0], "gmap"))
    path = (at["path"] if at is not None else "") or ".".join(steps)
    if at is not None and steps and re.search(rf"\b{steps[-1]}(\[\d+\])?$", path) is None:
        path = f"{path}.{steps[-1]}"
    return invalid(_shortened(text.rstrip(".")), path)


def _shortened(text: str) -> str:
    """`text`, which may quote the sender, cut to a line."""
    return text if len(text) <= 160 else f"{text[:160]}..."
