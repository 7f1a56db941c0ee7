"""Who is calling, told from the headers that Chariot's proxy and other gateways send."""

import uuid
from typing import Any

from litestar import Request
from litestar.types import Message, Scope

from app.engine.events import Caller

__all__ = ("BASE_ID_HEADER", "REQUEST_ID_HEADER", "TRACE_HEADERS", "caller_of", "return_ids")

REQUEST_ID_HEADER = "x-request-id"
BASE_ID_HEADER = "chariot-inference-base-id"

TRACE_HEADERS = ("traceparent", "tracestate")
"""W3C Trace Context."""

_STATE_KEY = "charioteer_request_id"


def caller_of(request: Request[Any, Any, Any], protocol: str) -> Caller:
    """The sender of `request`; a request that came without an id is given one, which its response carries too."""
    headers = request.headers
    request_id = headers.get(REQUEST_ID_HEADER) or str(uuid.uuid4())
    request.scope["state"][_STATE_KEY] = request_id
    trace = {name: headers[name] for name in TRACE_HEADERS if name in headers}
    return Caller(protocol=protocol, request_id=request_id, base_id=headers.get(BASE_ID_HEADER), trace=trace)


async def return_ids(message: Message, scope: Scope) -> None:
    """Put a request's ids into the headers of its response, whatever it is. A `before_send` hook of Litestar."""
    if message["type"] != "http.response.start":
        return
    given = {name: value for name, value in scope["headers"] if name in _ID_HEADERS and value}
    made = scope["state"].get(_STATE_KEY)
    if made is not None:
        given.setdefault(_REQUEST_ID, made.encode("latin-1"))
    message["headers"] = [*message["headers"], *given.items()]


_REQUEST_ID = REQUEST_ID_HEADER.encode()
_ID_HEADERS = frozenset({_REQUEST_ID, BASE_ID_HEADER.encode()})
