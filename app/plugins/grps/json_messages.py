"""`GrpsMessage` in JSON: proto3's JSON mapping by protobuf itself, with original field names, plus `ndarray`."""

import math
import re
from contextlib import suppress
from typing import Any, cast

import msgspec
import numpy as np
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from numpy.typing import NDArray

from app.core.wire.json_body import read_json
from app.core.wire.json_tensors import array_of_rows
from app.plugins.grps.messages import GenericTensor, GrpsMessage, with_success_status
from app.plugins.grps.tensors import ELEMENTS
from tasks.inference.error import InferenceError, invalid, quote_value, truncate
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype

_LOCATION = re.compile(r' at "?GrpsMessage\.?(?P<path>[\w.\[\]]*?)"?\.*$')
_STEP = re.compile(r"Failed to parse (\w+) field: ")
_MAX_SENTENCE = 160


class _Head(msgspec.Struct):
    model: str = ""
    streaming: bool = False


_HEAD = msgspec.json.Decoder(_Head)


def read_json_message(body: bytes, limits: Limits | None = None) -> tuple[Any, bool]:
    """Decode a body within `limits`; also return whether its tensor came as `ndarray`.

    Raise INVALID_REQUEST with the reason of protobuf, and the field if protobuf names it; as `check_json`.
    """
    content = read_json(body, dict[str, Any], limits=limits)
    if content.get("bin_data", content.get("binData")) is not None:
        raise invalid("Expected binary data as the body, with the content type application/octet-stream", "bin_data")
    if not isinstance(streaming := content.pop("streaming", False), bool):
        raise invalid(f"Expected true or false, got {quote_value(streaming)}", "streaming")
    ndarray = content.pop("ndarray", None)
    plain_tensors = [_pop_numbers(tensor) for tensor in _tensors(content)]
    try:
        message = ParseDict(content, GrpsMessage())
    except (ParseError, OverflowError) as error:
        raise _parse_error(str(error)) from None
    for tensor, numbers in zip(message.gtensors.tensors if plain_tensors else (), plain_tensors, strict=True):
        tensor.MergeFrom(numbers)
    if ndarray is None:
        return message, False
    if kind := message.WhichOneof("data_oneof"):
        raise invalid(f"Expected one kind of data, got {kind} as well", "ndarray")
    if not isinstance(ndarray, list | int | float):
        raise invalid(f"Expected numbers, got {quote_value(ndarray)}", "ndarray")
    rows = cast("list[Any]", ndarray) if isinstance(ndarray, list) else [ndarray]
    array = array_of_rows(Datatype.FP32, rows, "ndarray")
    message.gtensors.tensors.add(
        dtype=7, shape=array.shape if rows is ndarray else (), flat_float32=array.ravel().tolist()
    )
    return message, True


def read_head(body: bytes) -> tuple[str, bool]:
    """Return the model that a body names, "" for none, and whether it asks to stream.

    `read_json_message` reports invalid bodies.
    """
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        head = _HEAD.decode(body)
        return head.model, head.streaming
    return "", False


def encode_json(message: Any, *, as_ndarray: bool = False) -> bytes:
    """Return a message as JSON, with `ndarray` as its only data if requested.

    Raise INVALID_REQUEST when the first tensor is not DT_FLOAT32, or there are no tensors.

    Args:
        message: the message; its arrays are removed.
        as_ndarray: whether to write the first tensor as nested numbers; NaN and infinities become null. The status
            names the other tensors, which are left out.
    """
    nested_values = _first_as_ndarray(message) if as_ndarray else None
    content = _content(message)
    if nested_values is not None:
        content["ndarray"] = nested_values
    return msgspec.json.encode(content)


def encode_streamed(message: Any) -> bytes:
    """Return a message of a stream as indented JSON; the indentation is the only separator between messages."""
    return msgspec.json.format(msgspec.json.encode(_content(message)), indent=2)


def _tensors(content: dict[str, Any]) -> list[Any]:
    gtensors = content.get("gtensors")
    tensors = cast("dict[str, Any]", gtensors).get("tensors") if isinstance(gtensors, dict) else None
    return cast("list[Any]", tensors) if isinstance(tensors, list) else []


def _pop_numbers(tensor: Any) -> Any:
    """Remove the arrays of numbers that fit their fields, and return a tensor with them.

    `ParseDict` converts number by number, which takes seconds for an image. It reports the arrays that do not fit.
    """
    numbers = GenericTensor()
    if not isinstance(tensor, dict):
        return numbers
    fields = cast("dict[str, Any]", tensor)
    for field in ELEMENTS.stored_dtypes:
        values = cast("list[Any]", fields[field]) if isinstance(fields.get(field), list) else []
        types = set(map(type, values))
        with suppress(TypeError, ValueError, OverflowError):
            if types == {str} and field == "flat_int64":
                values, types = list(map(int, values)), {int}
            if values and types <= {int, float}:
                part = GenericTensor(**{field: values})
                # protobuf stores a float out of range as infinity.
                if not any(map(math.isinf, getattr(part, field))):
                    numbers.MergeFrom(part)
                    del fields[field]
    return numbers


def _parse_error(text: str) -> InferenceError:
    """Return protobuf's sentence as an error. Without a location in it, the path has only the names of the fields."""
    sentence = text.partition("\n")[0]
    path = ".".join(_STEP.findall(sentence))
    sentence = _STEP.sub("", sentence)
    location = _LOCATION.search(sentence)
    if location is not None:
        path, sentence = location["path"], sentence[: location.start()]
    return invalid(truncate(sentence.rstrip("."), _MAX_SENTENCE), path)


def _content(message: Any) -> dict[str, Any]:
    """Return a message as plain values. Long arrays do not pass `MessageToDict`, which converts number by number."""
    arrays: list[dict[str, list[Any]]] = []
    for tensor in message.gtensors.tensors if message.HasField("gtensors") else ():
        flat: dict[str, list[Any]] = {}
        for field, stored in ELEMENTS.stored_dtypes.items():
            values = list(getattr(tensor, field))
            if values and (stored.kind != "f" or all(map(math.isfinite, values))):
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
    if others := [tensor.name for tensor in tensors[1:]]:
        names = ", ".join(map(quote_value, others))
        with_success_status(message, f"OK; ndarray is {quote_value(first.name)} and leaves out {names}")
    message.ClearField("gtensors")
    return nested
