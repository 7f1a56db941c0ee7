"""Send GRPS requests over HTTP or gRPC, and read the responses."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from google.protobuf.json_format import MessageToDict

from app.conformance.check import InconclusiveError, NotApplicableError, ViolationError, quote
from app.conformance.client.calls import GrpcCall, call, first_response, parse_request
from app.conformance.client.probe import Exchange, InvalidJsonError, Probe
from app.conformance.grps.messages import REFUSED, expect_failure, expect_success, request_messages
from app.proto import GRPS

_ROOT = "/grps/v1"
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


def call_method(
    probe: Probe, method: str, message: Mapping[str, Any] | None = None, *, fresh: bool = False
) -> Exchange:
    """Call a method of the service: over gRPC, or at its path over HTTP.

    Raises:
        InconclusiveError: the given message is not a GrpsMessage.
    """
    if probe.transport is None:
        path = f"{_ROOT}/{_PATHS[method]}"
        return probe.send("GET", path, fresh=fresh) if message is None else probe.post_json(path, message)
    request = parse_request(message or {}, "grps.protos.v1.GrpsMessage")
    return call(probe, GRPS, method, request, fresh=fresh)


def predict(probe: Probe, message: Mapping[str, Any], **query: str) -> Exchange:
    """Call predict; HTTP takes a query."""
    return probe.post_json(_predict_path(query), message) if query else call_method(probe, "Predict", message)


def post_bytes(probe: Probe, body: bytes, content_type: str, **query: str) -> Exchange:
    """Send POST with bytes of the Content-Type `content_type` to predict."""
    return probe.post(_predict_path(query), body, content_type)


def _predict_path(query: Mapping[str, str]) -> str:
    return f"{_ROOT}/{_PATHS['Predict']}" + (f"?{urlencode(query)}" if query else "")


def model_query(probe: Probe) -> dict[str, str]:
    """Return the query that names the model; empty if no model was given."""
    return {"model": probe.target.model} if probe.target.model else {}


def message_of(exchange: Exchange) -> dict[str, Any]:
    """Return the message of a response. The status of a gRPC call is OK even if the message reports a failure.

    Raises:
        ViolationError: there is no message, or the body over HTTP is not a JSON object.
    """
    if isinstance(exchange, GrpcCall):
        return MessageToDict(first_response(exchange), preserving_proto_field_name=True)
    try:
        return exchange.object()
    except InvalidJsonError as error:
        raise ViolationError(f"{error}: {exchange.status} {quote(exchange.body)}") from None


def success(exchange: Exchange) -> dict[str, Any]:
    """Return the message of a successful response.

    Raises:
        ViolationError: the message or the HTTP status does not report success.
    """
    message = message_of(exchange)
    expect_success(message)
    if not exchange.ok:
        raise ViolationError(f"Expected HTTP status 200 for a success, got {exchange.status}")
    return message


def failure(exchange: Exchange, *codes: int) -> dict[str, Any]:
    """Return the message of a failed response.

    Raises:
        ViolationError: the message does not report a failure, or its code is not in `codes`.
    """
    message = message_of(exchange)
    expect_failure(message, *codes)
    return message


def succeeds(exchange: Exchange) -> bool:
    """Return whether a response is bytes, or a message that reports success."""
    if exchange.ok and exchange.headers.get("content-type", "").startswith(BYTES):
        return True
    try:
        expect_success(message_of(exchange))
    except ViolationError:
        return False
    return exchange.ok


def first_success(probe: Probe, messages: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, Any], Exchange]:
    """Return the first message with a successful response, and that response.

    Raises:
        InconclusiveError: no message succeeds.
    """
    for message in messages:
        exchange = predict(probe, message)
        if succeeds(exchange):
            return message, exchange
    raise InconclusiveError(REFUSED)


def example(probe: Probe) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return a request message and its response message.

    Raises:
        NotApplicableError: the response is bytes.
    """
    sent, exchange = first_success(probe, request_messages(probe.target))
    if exchange.headers.get("content-type", "").startswith(BYTES):
        raise NotApplicableError("About models that answer with messages")
    return sent, exchange.object()


def split_messages(body: bytes) -> Sequence[dict[str, Any]]:
    """Return JSON objects that are concatenated, with only white space between them."""
    text, messages = body.decode(errors="replace").strip(), list[dict[str, Any]]()
    while text:
        end = _end_of_object(text)
        try:
            messages.append(msgspec.json.decode(text[:end].encode(), type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise ViolationError(f"Expected concatenated messages: {error}, got {quote(text)}") from None
        text = text[end:].lstrip()
    return messages


def _end_of_object(text: str) -> int:
    depth, quoted, escaped = 0, False, False
    for index, letter in enumerate(text):
        if quoted:
            quoted, escaped = letter != '"' or escaped, letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            if depth == 0:
                return index + 1
        elif depth == 0:
            break
    return len(text)
