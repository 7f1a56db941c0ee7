"""Encode `GrpsMessage` as JSON: proto3's JSON mapping with original field names, plus `ndarray`."""

import math
from typing import Any

import msgspec
import numpy as np
from google.protobuf.json_format import MessageToDict
from numpy.typing import NDArray

from app.protocols.grps.tensors import FLAT_FIELDS
from tasks.inference.error import invalid

__all__ = ("encode_json", "encode_streamed")


def encode_json(message: Any, *, as_ndarray: bool = False) -> bytes:
    """Return a message as JSON, with `ndarray` as its only data if requested.

    Args:
        message: the message; its arrays are removed.
        as_ndarray: whether to write the first tensor as nested numbers; NaN and infinities become null.

    Raises:
        InferenceError: INVALID_REQUEST when the first tensor is not DT_FLOAT32, or there are no tensors.
    """
    nested_values = _first_as_ndarray(message) if as_ndarray else None
    content = _content(message)
    if nested_values is not None:
        content["ndarray"] = nested_values
    return msgspec.json.encode(content)


def encode_streamed(message: Any) -> bytes:
    """Return a message of a stream as indented JSON; the indentation is the only separator between messages."""
    return msgspec.json.format(msgspec.json.encode(_content(message)), indent=2)


def _content(message: Any) -> dict[str, Any]:
    """Return a message as plain values. Long arrays do not pass `MessageToDict`, which converts number by number."""
    arrays: list[dict[str, list[Any]]] = []
    for tensor in message.gtensors.tensors if message.HasField("gtensors") else ():
        flat: dict[str, list[Any]] = {}
        for field, wire in FLAT_FIELDS.items():
            values = list(getattr(tensor, field))
            if values and (wire.stored_dtype.kind != "f" or all(map(math.isfinite, values))):
                flat[field] = list(map(str, values)) if field == "flat_int64" else values
                tensor.ClearField(field)
        arrays.append(flat)
    content = MessageToDict(message, preserving_proto_field_name=True)
    for tensor, flat in zip(content.get("gtensors", {}).get("tensors", ()), arrays, strict=True):
        tensor.update(flat)
    # Sort maps, because protobuf's map order varies between runs.
    if "gmap" in content:
        maps: dict[str, dict[str, Any]] = content["gmap"]
        content["gmap"] = {name: dict(sorted(values.items())) for name, values in maps.items()}
    return content


def _first_as_ndarray(message: Any) -> object:
    tensors = message.gtensors.tensors
    if len(tensors) == 0 or tensors[0].dtype != 7:
        expected = "Expected a DT_FLOAT32 tensor as the first output"
        actual = f"{tensors[0].name!r} of another dtype" if len(tensors) else "no tensors"
        raise invalid(f"{expected}, got {actual}", "return-ndarray")
    first = tensors[0]
    numbers: NDArray[np.float32] = np.fromiter(first.flat_float32, np.float32, len(first.flat_float32))
    nested = numbers.reshape(tuple(first.shape)).tolist()
    message.ClearField("gtensors")
    return nested
