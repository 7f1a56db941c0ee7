"""Who is calling, told from the headers that Chariot's proxy and other gateways send."""

import math
from functools import partial
from typing import Any

from litestar import Request
from litestar.types import Message, Scope

from app.engine.admission import TIMEOUT_HEADER
from app.engine.events import Caller
from app.engine.ids import request_id as made_request_id

__all__ = ("BASE_ID_HEADER", "REQUEST_ID_HEADER", "TRACE_HEADERS", "caller_of", "return_ids")

REQUEST_ID_HEADER = "x-request-id"
BASE_ID_HEADER = "chariot-inference-base-id"

TRACE_HEADERS = ("traceparent", "tracestate")
"""W3C Trace Context."""

_MESH_TIMEOUT_HEADER = "x-envoy-expected-rq-timeout-ms"
"""What Envoy, and so Istio's and KServe's meshes, tell of the time that they will wait."""

_STATE_KEY = "charioteer_returned"


def caller_of(request: Request[Any, Any, Any], protocol: str) -> Caller:
    """The sender of `request`; a request that came without an id is given one, which its response carries too."""
    headers = request.headers
    request_id = headers.get(REQUEST_ID_HEADER) or made_request_id()
    returned = {REQUEST_ID_HEADER: request_id}
    request.scope["state"][_STATE_KEY] = returned
    trace = {name: headers[name] for name in TRACE_HEADERS if name in headers}
    return Caller(
        protocol=protocol,
        request_id=request_id,
        base_id=headers.get(BASE_ID_HEADER),
        trace=trace,
        returned=returned,
        timeout=_seconds(headers.get(TIMEOUT_HEADER, headers.get(_MESH_TIMEOUT_HEADER))),
        gone=partial(_departure, request),
    )


def _seconds(milliseconds: str | None) -> float | None:
    """The time that a header tells; not a number where it tells none."""
    if milliseconds is None:
        return None
    try:
        return float(milliseconds) / 1000
    except ValueError:
        return math.nan


async def _departure(request: Request[Any, Any, Any]) -> None:
    """Wait until the sender of `request`, whose body has been read, has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def return_ids(message: Message, scope: Scope) -> None:
    """Put a request's ids into the headers of its response, whatever it is. A `before_send` hook of Litestar."""
    if message["type"] != "http.response.start":
        return
    given = {name: value for name, value in scope["headers"] if name in _ID_HEADERS and value}
    made: dict[str, str] = scope["state"].get(_STATE_KEY, {})
    told = {name.encode("latin-1"): value.encode("latin-1") for name, value in made.items()}
    message["headers"] = [*message["headers"], *{**told, **given}.items()]


_ID_HEADERS = frozenset({REQUEST_ID_HEADER.encode(), BASE_ID_HEADER.encode()})
