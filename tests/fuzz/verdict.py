"""Check that a response is allowed: it states the error correctly, and the client can read it."""

import json
import re
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

from app.core.proto import INFERENCE, message_class
from app.plugins.grps.proto import GRPS
from tests.fuzz.answers import Answer
from tests.fuzz.models import SPARE
from tests.fuzz.requests import HEADER_LENGTH, Bytes, Call, Http
from tests.support.protocol_cases import PROTOCOL_CASES

_LEAKS = re.compile(
    rb"Traceback \(most recent|site-packages|\.py\", line|/app/(protocols|engine|server)/|object at 0x[0-9a-f]{6}"
    rb"|Something went wrong in the server"
)
"""Internals of the server, or its message for an internal error, which streams send in band."""
_GRPC_CODES = (
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "UNIMPLEMENTED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
)
_TIMEOUT_HEADERS = (b"timeout", b"x-request-timeout", b"request-timeout")


def answer_fault(request: Http, answer: Answer) -> str | None:
    """Return the error in an HTTP response; None if there is none."""
    if fault := _status_fault(request, answer.status):
        return fault
    if leak := _LEAKS.search(answer.body):
        return f"an answer that shows the server's inside: {leak[0].decode()}"
    if request.method == b"HEAD" or answer.status in (204, 304):
        return None if not answer.body else "a body where none may be"
    if answer.headers.get("content-encoding", "identity") != "identity":
        return None if b"accept-encoding" in dict(request.headers) else "an encoding that the client did not accept"
    return _body_fault(request, answer)


def bytes_fault(request: Bytes, answers: list[Answer]) -> str | None:
    """Return the error in responses to arbitrary bytes; None if there is none."""
    del request
    for answer in answers:
        if answer.status >= 500 and answer.status not in (501, 503, 505):
            return f"status {answer.status}"
        if leak := _LEAKS.search(answer.body):
            return f"an answer that shows the server's inside: {leak[0].decode()}"
        if (
            answer.media_type == "application/json"
            and answer.body
            and isinstance(parsed := _document(answer.body), str)
        ):
            return parsed
    return None


def call_fault(call: Call, code: str, details: str, answers: list[bytes]) -> str | None:
    """Return the error in a gRPC response; None if there is none."""
    if _LEAKS.search(details.encode()):
        return f"a status that shows the server's inside: {details}"
    if code == "DEADLINE_EXCEEDED":
        return None if call.timeout < 60 else "no answer within 60 s"
    if code == "UNAVAILABLE":
        return None if any(SPARE.encode() in message for message in call.messages) else f"UNAVAILABLE: {details}"
    if code not in _GRPC_CODES:
        return f"{code}: {details}"
    if code != "OK" and not details:
        return f"{code} without a word"
    return next(filter(None, (_message_fault(call, answer) for answer in answers)), None)


def _status_fault(request: Http, status: int) -> str | None:
    if 200 <= status < 300 or 400 <= status < 500:
        return None
    if (
        status == 501 and request.port == "tensorflow-serving"
    ):  # TensorFlow Serving returns this if JSON cannot represent a dtype.
        return None
    if status == 501 and unquote_to_bytes(request.target).lower().partition(b"?")[0].endswith(b":explain"):
        return None
    if status == 503 and SPARE.encode() in unquote_to_bytes(request.target):
        return None
    if status == 504 and (
        any(name in _TIMEOUT_HEADERS for name, _ in request.headers)
        # The parameter of Triton, in the body or in V2's JSON before the bytes of tensors.
        or b'"timeout"' in request.head
    ):
        return None
    return f"status {status}"


def _body_fault(request: Http, answer: Answer) -> str | None:
    kind = answer.media_type
    if request.port == "tensorflow-serving" and (request.method == b"OPTIONS" or kind == "text/html"):
        return None  # TensorFlow Serving returns an empty body or libevent's page.
    if HEADER_LENGTH.decode() in answer.headers:
        return _binary_fault(answer)
    if kind == "text/event-stream":
        return _events_fault(answer.body)
    if kind in ("application/json", "application/cloudevents+json", "application/openapi+json"):
        streamed = answer.headers.get("transfer-encoding") == "chunked"
        document = _documents(answer.body) if streamed else _document(answer.body, nan=request.port != "http")
        if isinstance(document, str):
            return document
        return _error_fault(answer.status, document) if answer.status >= 400 else None
    if kind in ("application/jsonl", "application/x-ndjson"):
        parsed = _documents(answer.body)
        return parsed if isinstance(parsed, str) else None
    if answer.status >= 400:
        return f"status {answer.status} as {kind or 'nothing'}: {answer.body[:80]!r}"
    if not answer.body:
        return None
    return None if kind else "an answer without a content type"


def _document(body: bytes, *, nan: bool = False) -> Any:
    """Return a JSON document in a list, or an error text."""
    try:
        return [json.loads(body.decode(), parse_constant=None if nan else _reject_constant)]
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}: {body[:80]!r}"


def _documents(body: bytes) -> Any:
    """Return all concatenated JSON documents, or an error text."""
    decoder = json.JSONDecoder()
    parsed_documents: list[Any] = []
    try:
        text = body.decode()
        while text := text.lstrip():
            document, end = decoder.raw_decode(text)
            parsed_documents.append(document)
            text = text[end:]
    except (ValueError, RecursionError) as error:
        return f"no JSON, one behind the other: {error}: {body[:80]!r}"
    return parsed_documents


def _reject_constant(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


def _error_fault(status: int, documents: list[Any]) -> str | None:
    """Check that an error has a message, in the format of one of the protocols."""
    readers = {case.read_error for case in PROTOCOL_CASES.values()}
    for document in documents:
        # Readiness has a status instead of an error.
        if isinstance(document, dict) and isinstance(document.get("status"), str):
            return None
        for read_error in readers:
            with suppress(AssertionError, AttributeError, LookupError, TypeError):
                if read_error(status, document).strip():
                    return None
    return f"an error without a word: {documents!r:.100}"


def _binary_fault(answer: Answer) -> str | None:
    length = int(answer.headers[HEADER_LENGTH.decode()])
    document = _document(answer.body[:length])
    if isinstance(document, str):
        return document
    sizes = [output.get("parameters", {}).get("binary_data_size", 0) for output in document[0].get("outputs", [])]
    if length + sum(sizes) != len(answer.body):
        return f"{len(answer.body)} bytes, but {length} of JSON and {sum(sizes)} of tensors"
    return None


def _events_fault(body: bytes) -> str | None:
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        if event.strip() and data != b"[DONE]" and isinstance(parsed := _document(data), str):
            return parsed
    return None


def _message_fault(call: Call, data: bytes) -> str | None:
    service, _, method = call.method[1:].rpartition("/")
    method_descriptor = {descriptor.full_name: descriptor for descriptor in (INFERENCE, GRPS)}[
        service
    ].methods_by_name.get(method)
    if method_descriptor is None:
        return f"an answer of {call.method}, which there is not"
    try:
        message = message_class(method_descriptor.output_type.full_name).FromString(data)
    except Exception as error:  # noqa: BLE001  Protobuf may raise anything.
        return f"no {method_descriptor.output_type.name}: {error}"
    if _LEAKS.search(data):
        return "a message that shows the server's inside"
    if service == GRPS.full_name:
        code = message.status.code
        if not (code == 200 or 400 <= code < 500 or (code in (503, 504) and call.timeout < 60)):
            return f"status {code}: {message.status.msg}"
        if code != 200 and not message.status.msg:
            return f"status {code} without a word"
    return None
