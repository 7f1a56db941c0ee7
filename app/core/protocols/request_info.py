"""Read request information from the headers that Chariot's proxy and other gateways send, and set response headers."""

import math
from collections.abc import Mapping
from contextvars import ContextVar

from litestar.types import Message, Scope

from app.core.engine.request_context import RequestContext
from app.core.engine.request_context import request_id as new_request_id
from app.core.engine.scheduling.admission import TIMEOUT_HEADER

RETRY_AFTER = "retry-after"
"""The header with the seconds after which a client should retry (RFC 9110, 10.2.3)."""

REQUEST_ID_HEADER = "x-request-id"
BASE_ID_HEADER = "chariot-inference-base-id"
TRIAL_HEADER = "charioteer-trial"

TRACE_HEADERS = ("traceparent", "tracestate")
"""W3C Trace Context."""

_MESH_TIMEOUT_HEADER = "x-envoy-expected-rq-timeout-ms"
"""Timeout header of Envoy, and so of Istio and of KServe's service meshes."""

_MAX_ID_LENGTH = 1024
RESPONSE_HEADERS = "charioteer_returned"
"""The key of the state of a request with the headers that `set_response_header` added."""

CLIENT: ContextVar[str] = ContextVar("CLIENT", default="")
"""Name of the client of the current request or call; set where the server identifies clients."""


def valid_id(value: str | None) -> str | None:
    """Return an id or a trace as the client sent it; None if it is too long for logs and responses."""
    return value if value and len(value) <= _MAX_ID_LENGTH else None


def new_context(headers: Mapping[str, str], protocol: str, address: str) -> RequestContext:
    """Return the context of a request; make an id if it has none.

    The names of `headers`, of HTTP or metadata of gRPC, are in lower case. `address` is the client's.
    """
    request_id = valid_id(headers[REQUEST_ID_HEADER]) if REQUEST_ID_HEADER in headers else None
    context = RequestContext(protocol=protocol, request_id=request_id or new_request_id(), address=address)
    if TIMEOUT_HEADER in headers or _MESH_TIMEOUT_HEADER in headers:
        context.timeout = _timeout_of(headers)
    if BASE_ID_HEADER in headers:
        context.base_id = valid_id(headers[BASE_ID_HEADER])
    if TRIAL_HEADER in headers:
        context.trial = headers[TRIAL_HEADER] == "true"
    if TRACE_HEADERS[0] in headers or TRACE_HEADERS[1] in headers:
        context.trace = {name: value for name in TRACE_HEADERS if (value := valid_id(headers.get(name))) is not None}
    return context


def address_of(scope: Scope) -> str:
    """Return the address that a connection comes from; empty if unknown."""
    client = scope["client"]
    return client[0] if client else ""


def client_request_id(scope: Scope) -> str:
    """Return the request id as the client sent it; empty if it is missing or too long."""
    return valid_id(dict(scope["headers"]).get(REQUEST_ID_HEADER.encode(), b"").decode("latin-1")) or ""


def set_response_header(scope: Scope, name: str, value: str) -> None:
    """Add a header to the response, also if it is an error."""
    scope["state"].setdefault(RESPONSE_HEADERS, {})[name] = value


def _timeout_of(headers: Mapping[str, str]) -> float:
    """Return the seconds that a client waits, from HTTP headers or gRPC metadata; NaN without a number of 0 or more."""
    try:
        seconds = float(headers[TIMEOUT_HEADER if TIMEOUT_HEADER in headers else _MESH_TIMEOUT_HEADER]) / 1000
    except ValueError:
        return math.nan
    # Only a gRPC deadline that has passed is negative.
    return seconds if seconds >= 0 else math.nan


async def add_id_headers(message: Message, scope: Scope) -> None:
    """Add the request's ids to the headers of any response. A `before_send` hook of Litestar."""
    if message["type"] != "http.response.start":
        return
    id_headers = {
        name: value for name, value in scope["headers"] if name in _ID_HEADERS and 0 < len(value) <= _MAX_ID_LENGTH
    }
    added = scope["state"].get(RESPONSE_HEADERS, {})
    pending = {name.encode("latin-1"): value.encode("latin-1") for name, value in added.items()}
    # A mounted application may have set some of them.
    present = {name for name, _ in message["headers"]}
    missing = [header for header in {**pending, **id_headers}.items() if header[0] not in present]
    message["headers"] = [*message["headers"], *missing]


_ID_HEADERS = frozenset({REQUEST_ID_HEADER.encode(), BASE_ID_HEADER.encode()})
