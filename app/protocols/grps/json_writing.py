"""`GrpsMessage` to JSON: proto3's mapping with the fields' own names, and `ndarray`, which only exists there."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from google.protobuf.json_format import MessageToDict
from numpy.typing import NDArray

from app.protocols.grps.tensors import FLAT_FIELDS
from tasks.exchange.error import invalid

__all__ = ("written_json", "written_part")


def written_json(message: Any, *, as_ndarray: bool = False) -> bytes:
    """A message as JSON, its only data `ndarray` where that is wanted.

    Args:
        message: is used up.
        as_ndarray: write the first tensor as nested numbers; those that are not finite become null.

    Raises:
        InferenceError: INVALID_REQUEST when the first tensor is not DT_FLOAT32, or there is none.
    """
    nested = _first_as_ndarray(message) if as_ndarray else None
    content = _content(message)
    if nested is not None:
        content["ndarray"] = nested
    return msgspec.json.encode(content)


def written_part(message: Any) -> bytes:
    """A message of a stream: indented, which is all that stands between it and the next."""
    return msgspec.json.format(msgspec.json.encode(_content(message)), indent=2)


def _content(message: Any) -> dict[str, Any]:
    """A message as plain values, its long arrays not one by one."""
    arrays: list[dict[str, Sequence[Any]]] = []
    for tensor in message.gtensors.tensors if message.HasField("gtensors") else ():
        flat: dict[str, Sequence[Any]] = {}
        for field, wire in FLAT_FIELDS.items():
            values: Sequence[Any] = getattr(tensor, field)
            if len(values) > 0:
                flat[field] = _JSON_ELEMENTS[wire.held.kind, wire.held.itemsize](values)
                tensor.ClearField(field)
        arrays.append(flat)
    content = MessageToDict(message, preserving_proto_field_name=True)
    for tensor, flat in zip(content.get("gtensors", {}).get("tensors", ()), arrays, strict=True):
        tensor.update(flat)
    # A map has no order of its own, and none that is the same twice.
    if "gmap" in content:
        maps: dict[str, dict[str, Any]] = content["gmap"]
        content["gmap"] = {name: dict(sorted(values.items())) for name, values in maps.items()}
    return content


def _as_they_are(values: Sequence[Any]) -> Sequence[Any]:
    return list(values)


def _in_strings(values: Sequence[int]) -> Sequence[str]:
    return list(map(str, values))


def _floats(values: Sequence[float]) -> Sequence[Any]:
    numbers = np.fromiter(values, np.float64, len(values))
    found: list[Any] = numbers.tolist()
    for index in np.flatnonzero(~np.isfinite(numbers)).tolist():
        found[index] = "NaN" if np.isnan(numbers[index]) else "Infinity" if numbers[index] > 0 else "-Infinity"
    return found


_JSON_ELEMENTS: dict[tuple[str, int], Callable[[Sequence[Any]], Sequence[Any]]] = {
    ("u", 4): _as_they_are,
    ("i", 4): _as_they_are,
    ("i", 8): _in_strings,
    ("f", 4): _floats,
    ("f", 8): _floats,
    ("O", 8): _as_they_are,
}


def _first_as_ndarray(message: Any) -> object:
    tensors = message.gtensors.tensors
    if len(tensors) == 0 or tensors[0].dtype != 7:
        expected = "Expected a DT_FLOAT32 tensor as the first of the answer"
        found = f"{tensors[0].name!r} of another dtype" if len(tensors) else "no tensors"
        raise invalid(f"{expected}, got {found}", "return-ndarray")
    first = tensors[0]
    numbers: NDArray[np.float32] = np.fromiter(first.flat_float32, np.float32, len(first.flat_float32))
    nested = numbers.reshape(tuple(first.shape)).tolist()
    message.ClearField("gtensors")
    return nested
