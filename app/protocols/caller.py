"""Who is calling, told from the headers that Chariot's proxy and other gateways send."""

import math
from contextvars import ContextVar
from functools import partial
from typing import Any

from litestar import Request
from litestar.types import Message, Scope

from app.engine.admission import TIMEOUT_HEADER
from app.engine.events import Caller
from app.engine.ids import request_id as made_request_id

__all__ = (
    "BASE_ID_HEADER",
    "CLIENT",
    "REQUEST_ID_HEADER",
    "TRACE_HEADERS",
    "address_of",
    "caller_of",
    "given_id",
    "given_request_id",
    "return_header",
    "return_ids",
    "returned_header",
)

REQUEST_ID_HEADER = "x-request-id"
BASE_ID_HEADER = "chariot-inference-base-id"

TRACE_HEADERS = ("traceparent", "tracestate")
"""W3C Trace Context."""

_MESH_TIMEOUT_HEADER = "x-envoy-expected-rq-timeout-ms"
"""What Envoy, and so Istio's and KServe's meshes, tell of the time that they will wait."""

_LONGEST_ID = 1024
_STATE_KEY = "charioteer_returned"

CLIENT: ContextVar[str] = ContextVar("CLIENT", default="")
"""Who is calling, for as long as one request or call is answered: set where callers are told apart."""


def given_id(value: str | None) -> str | None:
    """An id, or a trace, as its sender gave it; None for one that is too long to be written in every log and answer."""
    return value if value and len(value) <= _LONGEST_ID else None


def caller_of(request: Request[Any, Any, Any], protocol: str) -> Caller:
    """The sender of `request`; a request that came without an id is given one, which its response carries too."""
    headers = request.headers
    request_id = given_id(headers.get(REQUEST_ID_HEADER)) or made_request_id()
    returned = {REQUEST_ID_HEADER: request_id}
    request.scope["state"][_STATE_KEY] = returned
    trace = {name: value for name in TRACE_HEADERS if (value := given_id(headers.get(name))) is not None}
    return Caller(
        protocol=protocol,
        request_id=request_id,
        base_id=given_id(headers.get(BASE_ID_HEADER)),
        trace=trace,
        returned=returned,
        timeout=_seconds(headers.get(TIMEOUT_HEADER, headers.get(_MESH_TIMEOUT_HEADER))),
        gone=partial(_departure, request),
        client=CLIENT.get(),
        address=address_of(request.scope),
    )


def address_of(scope: Scope) -> str:
    """Where a connection comes from; empty where that is not known."""
    client = scope["client"]
    return client[0] if client else ""


def given_request_id(scope: Scope) -> str:
    """The request's id as its sender gave it; empty where it gave none, or one that is too long."""
    return given_id(dict(scope["headers"]).get(REQUEST_ID_HEADER.encode(), b"").decode("latin-1")) or ""


def return_header(scope: Scope, name: str, value: str) -> None:
    """Have the response carry a header, whatever response it will be."""
    scope["state"].setdefault(_STATE_KEY, {})[name] = value


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


def returned_header(scope: Scope, name: str) -> str:
    """What the response will carry as a header by what is known now; empty when nothing."""
    returned: dict[str, str] = scope["state"].get(_STATE_KEY, {})
    return returned.get(name, "")


async def return_ids(message: Message, scope: Scope) -> None:
    """Put a request's ids into the headers of its response, whatever it is. A `before_send` hook of Litestar."""
    if message["type"] != "http.response.start":
        return
    given = {name: value for name, value in scope["headers"] if name in _ID_HEADERS and 0 < len(value) <= _LONGEST_ID}
    made: dict[str, str] = scope["state"].get(_STATE_KEY, {})
    told = {name.encode("latin-1"): value.encode("latin-1") for name, value in made.items()}
    # An application below this one may have put them there.
    there = {name for name, _ in message["headers"]}
    more = [each for each in {**told, **given}.items() if each[0] not in there]
    message["headers"] = [*message["headers"], *more]


_ID_HEADERS = frozenset({REQUEST_ID_HEADER.encode(), BASE_ID_HEADER.encode()})
