"""Build GRPS messages in protobuf's JSON, send them over HTTP or gRPC, and check the parts of responses."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
import yaml

from app.plugins.conformance.check import NotApplicableError, expect
from app.plugins.conformance.client.calls import call, parse_request
from app.plugins.conformance.client.exchange import Exchange, InconclusiveError, ViolationError, decode_object, quote
from app.plugins.conformance.client.probe import Probe
from app.plugins.conformance.tensors import ENCODED_IMAGES, expect_form, is_list, is_object
from app.plugins.grps.proto import GRPS

UNKNOWN = "conform-unknown-1"
"""A model name that no engine knows."""

REFUSED = "The engine refuses every generated message; give one with --request"

KINDS = ("bin_data", "str_data", "gtensors", "ndarray", "gmap")
"""The kinds of data; a message has one of them."""

_ROOT = "/grps/v1/"
BYTES = "application/octet-stream"
_PATHS: Mapping[str, str] = {
    "CheckLiveness": "health/live",
    "CheckReadiness": "health/ready",
    "Online": "health/online",
    "Offline": "health/offline",
    "ServerMetadata": "metadata/server",
    "ModelMetadata": "metadata/model",
    "Predict": "infer/predict",
}
"""The path of each method over HTTP."""

_SUCCESS = ("SUCCESS", 1)
_SIDE = 64
_Float = float | Literal["NaN", "Infinity", "-Infinity"]


class _Tensor(msgspec.Struct):
    """A tensor in protobuf's JSON, which has 64-bit integers as strings."""

    dtype: Any = None
    name: str = ""
    shape: list[Annotated[int, msgspec.Meta(ge=0)]] = []
    flat_uint8: list[int] = []
    flat_int8: list[int] = []
    flat_int16: list[int] = []
    flat_int32: list[int] = []
    flat_int64: list[int | Annotated[str, msgspec.Meta(pattern=r"^-*\d+$")]] = []
    flat_float16: list[_Float] = []
    flat_float32: list[_Float] = []
    flat_float64: list[_Float] = []
    flat_string: list[str] = []


FLAT = {f"DT_{field.removeprefix('flat_').upper()}": field for field in _Tensor.__struct_fields__[3:]}
"""The field of the elements for each dtype, in the order of the dtype numbers, from 1."""
_NUMBERS = {name: number for number, name in enumerate(FLAT, 1)}


def tensor_message(dtype: str, shape: Sequence[int], elements: Sequence[object]) -> dict[str, object]:
    """Return a message with one tensor."""
    return {"gtensors": {"tensors": [{"dtype": dtype, "shape": list(shape), FLAT[dtype]: list(elements)}]}}


_TENSORS = (
    tensor_message("DT_FLOAT32", [2], [1, 2]),
    tensor_message("DT_FLOAT32", [1, 2], [1, 2]),
    tensor_message("DT_UINT8", [_SIDE, _SIDE, 3], [118] * (_SIDE * _SIDE * 3)),
    tensor_message("DT_STRING", [1], ENCODED_IMAGES[:1]),
    tensor_message("DT_STRING", [1], ["hello grps"]),
)
_ANY = ({"str_data": "hello grps"}, {"str_data": ENCODED_IMAGES[0]}, *_TENSORS)


def model_field(probe: Probe) -> dict[str, str]:
    """Return the field of a message, or of the query, that names the model; empty if no model was given."""
    return {"model": probe.target.model} if probe.target.model else {}


def request_messages(probe: Probe) -> Sequence[Mapping[str, object]]:
    """Return the given message, or common messages; most engines accept at least one."""
    messages = [probe.target.request] if probe.target.request else _ANY
    return [{**model_field(probe), **message} for message in messages]


def tensor_messages(probe: Probe) -> Sequence[Mapping[str, object]]:
    """Return the given message if it has tensors, and common messages with tensors."""
    given = probe.target.request
    messages = (given, *_TENSORS) if given and "gtensors" in given else _TENSORS
    return [{**model_field(probe), **message} for message in messages]


def with_dtype_numbers(message: Mapping[str, Any]) -> dict[str, object]:
    """Return a message of tensors with dtype numbers instead of names."""
    tensors = [{**tensor, "dtype": _NUMBERS[tensor["dtype"]]} for tensor in message["gtensors"]["tensors"]]
    return {**message, "gtensors": {"tensors": tensors}}


def bare_name(probe: Probe) -> str:
    """Return the name of the model without its version, as metadata requests need it.

    Raise InconclusiveError if no model was given.
    """
    name = probe.target.model
    if not name:
        raise InconclusiveError("The model's name is not known; give it with --model")
    bare, dash, version = name.rpartition("-")
    return bare if dash and version[:1].isdigit() else name


def expect_success(message: Mapping[str, Any]) -> None:
    """Raise a `ViolationError` unless the status is 200 and SUCCESS (or 1)."""
    status: Any = message.get("status")
    is_success = is_object(status) and status.get("code") == 200 and status.get("status") in _SUCCESS
    expect(is_success, "the status 200 and SUCCESS", status)
    expect(isinstance(status.get("msg", ""), str), "a text in msg", status)


def expect_failure(message: Mapping[str, Any], *codes: int) -> None:
    """Raise a `ViolationError` unless the status is FAILURE (or 2).

    Its code must be one of `codes`; without `codes`, any but 200.
    """
    status: Any = message.get("status")
    expect(is_object(status) and status.get("status") in ("FAILURE", 2), "the status FAILURE", status)
    code = status.get("code")
    is_failure = type(code) is int and code != 200 and (not codes or code in codes)
    expect(is_failure, f"the code {' or '.join(map(str, codes)) or 'of a failure'}", code)


def expect_reasons(*exchanges: Exchange) -> None:
    """Raise a `ViolationError` if a message among `exchanges` reports a failure without its reason in msg."""
    for exchange in exchanges:
        status: Any = exchange.object().get("status")
        is_failure = is_object(status) and status.get("status") not in _SUCCESS
        expect(not is_failure or status.get("msg"), "a text in msg", status)


def data_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a message by kind."""
    return {kind: message[kind] for kind in KINDS if kind in message}


def expect_description(message: Mapping[str, Any]) -> None:
    """Raise a `ViolationError` unless str_data is a YAML list or mapping."""
    text: Any = message.get("str_data")
    expect(isinstance(text, str) and text.strip(), "a description in str_data", text)
    try:
        described: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ViolationError(f"Expected YAML in str_data: {quote(str(error))}") from None
    expect(isinstance(described, dict | list), "a description in YAML in str_data", text)


def expect_tensors(message: Mapping[str, Any]) -> None:
    """Raise a `ViolationError` if a tensor's elements do not match its dtype or its shape.

    Raise NotApplicableError if the message has no tensors.
    """
    tensors = tensors_in(message)
    if not tensors:
        raise NotApplicableError("About models that answer with tensors")
    for tensor in tensors:
        _expect_tensor(tensor)


def tensors_in(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the tensors of a message that are objects."""
    holder = message.get("gtensors")
    tensors = holder.get("tensors") if is_object(holder) else None
    return [tensor for tensor in tensors if is_object(tensor)] if is_list(tensors) else []


def _expect_tensor(value: Mapping[str, Any]) -> None:
    tensor = expect_form(value, _Tensor, "a tensor of shape and elements of their datatype")
    dtype: Any = next((known for known, number in _NUMBERS.items() if tensor.dtype in (known, number)), None)
    expect(dtype, "a dtype", tensor.dtype, tensor.name)
    elements = {field: value for field in FLAT.values() if (value := getattr(tensor, field))}
    own = elements.pop(FLAT[dtype], [])
    expect(not elements, f"elements of {dtype} in {FLAT[dtype]}", list(elements), tensor.name)
    size = math.prod(tensor.shape)
    expect(len(own) == size, f"{size} elements by its shape", own, tensor.name)


def call_method(probe: Probe, method: str, message: Mapping[str, Any] | None = None) -> Exchange:
    """Call a method of the service: over gRPC, or at its path over HTTP. Responses about health are never reused.

    Raise InconclusiveError if the given message is not a GrpsMessage.
    """
    path = _PATHS.get(method, "")
    fresh = path.startswith("health/")
    if probe.transport:
        request = parse_request(message or {}, "grps.protos.v1.GrpsMessage")
        return call(probe, GRPS, method, request, fresh=fresh)
    return probe.send("GET", _ROOT + path, fresh=fresh) if message is None else probe.post_json(_ROOT + path, message)


def predict(probe: Probe, message: Mapping[str, Any], **query: str) -> Exchange:
    """Call predict; HTTP takes a query."""
    return probe.post_json(_predict_path(query), message) if query else call_method(probe, "Predict", message)


def post_bytes(probe: Probe, body: bytes, content_type: str = "application/json") -> Exchange:
    """Send POST with bytes of the Content-Type `content_type` to predict; the query names the model."""
    return probe.post(_predict_path(model_field(probe)), body, content_type)


def _predict_path(query: Mapping[str, str]) -> str:
    return f"{_ROOT}{_PATHS['Predict']}" + (f"?{urlencode(query)}" if query else "")


def success(exchange: Exchange) -> dict[str, Any]:
    """Return the message of a successful response.

    Raise ViolationError if the message or the HTTP status does not report success.
    """
    message = exchange.object()
    expect_success(message)
    expect(exchange.ok, "HTTP status 200 for a success", exchange.status)
    return message


def failure(exchange: Exchange, *codes: int) -> None:
    """Raise a `ViolationError` unless the message reports a failure, with one of `codes` if given."""
    expect_failure(exchange.object(), *codes)


def _is_bytes(exchange: Exchange) -> bool:
    """Return whether a response is bytes instead of a message."""
    return exchange.ok and exchange.headers.get("content-type", "").startswith(BYTES)


def succeeds(exchange: Exchange) -> bool:
    """Return whether a response is bytes, or a message that reports success."""
    try:
        return _is_bytes(exchange) or bool(success(exchange))
    except ViolationError:
        return False


def first_success(probe: Probe, messages: Sequence[Mapping[str, object]] = ()) -> tuple[Mapping[str, Any], Exchange]:
    """Return the first of `messages`, or of `request_messages`, with a successful response, and that response.

    Raise InconclusiveError if no message succeeds.
    """
    for message in messages or request_messages(probe):
        exchange = predict(probe, message)
        if succeeds(exchange):
            return message, exchange
    raise InconclusiveError(REFUSED)


def example(probe: Probe, messages: Sequence[Mapping[str, object]] = ()) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return what `first_success` returns, with the message of the response.

    Raise NotApplicableError if the response is bytes.
    """
    sent, exchange = first_success(probe, messages)
    if _is_bytes(exchange):
        raise NotApplicableError("About models that answer with messages")
    return sent, exchange.object()


def split_messages(body: bytes) -> list[dict[str, Any]]:
    """Return JSON objects that are concatenated, with only white space between them."""
    text, messages = body.decode(errors="replace").strip(), list[dict[str, Any]]()
    while text:
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            end = len(text)
        messages.append(decode_object(text[:end].encode()))
        text = text[end:].lstrip()
    return messages
