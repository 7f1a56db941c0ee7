"""The interface of a gRPC protocol, and the request information and errors that all of them share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import unquote

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from app.engine.admission import MAX_TIMEOUT_SECONDS, RETRY_AFTER
from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.ids import request_id as new_request_id
from app.protocols.permission import Permission
from app.protocols.request_info import BASE_ID_HEADER, CLIENT, REQUEST_ID_HEADER, TRACE_HEADERS, timeout_of, valid_id
from app.protocols.status import grpc_status
from tasks.inference.error import ErrorKind, InferenceError

__all__ = (
    "PUSHBACK",
    "Call",
    "GrpcProtocol",
    "Handler",
    "abort_call",
    "address_of_call",
    "metadata_of",
    "read_call_info",
    "unary_handler",
)

# grpc's classes are generic only in its type stubs, so quote them.
Call: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"

PUSHBACK = "grpc-retry-pushback-ms"
"""Trailing metadata: how long clients wait before a retry (gRPC's proposal A6)."""

_MAX_DETAILS_BYTES = 2000
"""In UTF-8. Details travel percent-encoded in headers, and clients reject headers of more than 8 KiB in all."""

_logger = logging.getLogger(__name__)


class GrpcProtocol(Protocol):
    """A service: its name for settings and logs, its descriptor for reflection, and its methods over an engine."""

    @property
    def name(self) -> str: ...

    @property
    def service(self) -> ServiceDescriptor: ...

    @property
    def permissions(self) -> Mapping[str, Permission]:
        """The permission for each method by name. A method that is missing requires ``admin``."""
        ...

    @property
    def queued_methods(self) -> Collection[str]:
        """The methods whose call is one inference, which waits in the queue for a worker."""
        ...

    def refusal_message(self, error: InferenceError, /) -> bytes | None:
        """Return the message for a rejected call of `queued_methods`; None if the call ends with a status instead."""
        ...

    def target_model(self, data: bytes, /) -> str:
        """Return the model that a message to an ``admin`` method names; empty if it names none."""
        ...

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        """Return the methods by name, from message bytes to message bytes. Streams end early when `stopping` is set."""
        ...


def metadata_of(context: Call) -> Mapping[str, str]:
    """Return a call's metadata; if a key appears twice, the last value."""
    pairs = cast("tuple[tuple[str, str | bytes], ...]", context.invocation_metadata() or ())
    return {key: value for key, value in pairs if isinstance(value, str)}


def read_call_info(context: Call, protocol: str) -> RequestInfo:
    """Return information about a call. Make a request id if none was sent; trailing metadata returns both ids."""
    metadata = metadata_of(context)
    request_id = valid_id(metadata.get(REQUEST_ID_HEADER)) or new_request_id()
    base_id = valid_id(metadata.get(BASE_ID_HEADER))
    response_headers = {REQUEST_ID_HEADER: request_id}
    if base_id:
        response_headers[BASE_ID_HEADER] = base_id
    trace = {name: value for name in TRACE_HEADERS if (value := valid_id(metadata.get(name))) is not None}
    info = RequestInfo(
        protocol=protocol,
        request_id=request_id,
        base_id=base_id,
        trace=trace,
        response_headers=response_headers,
        timeout=_timeout(metadata, cast("float | None", context.time_remaining())),
        client=CLIENT.get(),
        address=address_of_call(context),
    )
    _set_trailing_headers(context, info)
    return info


def _timeout(metadata: Mapping[str, str], remaining: float | None) -> float | None:
    """Return the shorter of a call's remaining time and the timeout in its metadata, in seconds; None without both.

    The metadata is checked as over HTTP. The remaining time is limited to the maximum, because
    many libraries send a deadline of years for clients without one.
    """
    requested = timeout_of(metadata)
    if remaining is None:
        return requested
    remaining = min(remaining, MAX_TIMEOUT_SECONDS)
    if requested is None:
        return remaining
    # Keep a value above the maximum, or NaN, so that it is rejected later.
    return min(remaining, requested) if requested <= MAX_TIMEOUT_SECONDS else requested


def address_of_call(context: Call) -> str:
    """Return the address that a call comes from, without its port; empty if unknown."""
    # A peer is written as ipv4:127.0.0.1:50051, or ipv6:[::1]:50051 with percent-encoded brackets.
    peer = context.peer()
    if not peer.startswith(("ipv4:", "ipv6:")):
        return ""
    return unquote(peer[5:]).rpartition(":")[0].strip("[]")


def _set_trailing_headers(context: Call, info: RequestInfo) -> None:
    """Write the response headers that are known so far into the trailing metadata."""
    response_headers = dict(info.response_headers)
    if RETRY_AFTER in response_headers:
        response_headers[PUSHBACK] = str(int(response_headers.pop(RETRY_AFTER)) * 1000)
    context.set_trailing_metadata(tuple(response_headers.items()))


def unary_handler(protocol: str, method: Callable[[bytes, RequestInfo], Awaitable[bytes]]) -> Handler:
    """Return a handler for `method`. Errors end the call with the status of their kind."""

    async def handle(data: bytes, context: Call) -> bytes:
        info = read_call_info(context, protocol)
        try:
            response = await method(data, info)
            _set_trailing_headers(context, info)
            return response
        except Exception as error:  # noqa: BLE001  grpc would send any exception to the client
            failure = error
        return await abort_call(context, info, failure)

    return cast("Handler", grpc.unary_unary_rpc_method_handler(cast("Any", handle)))


async def abort_call(context: Call, info: RequestInfo, failure: Exception) -> bytes:
    """End a call because of `failure`. Clients see only an `InferenceError`; other exceptions are logged."""
    if not isinstance(failure, InferenceError):
        _logger.error("call failed", exc_info=failure, extra={"request_id": info.request_id})
        message = f"Something went wrong in the server; see its log for request {info.request_id}"
        failure = InferenceError(ErrorKind.INTERNAL, message)
    _set_trailing_headers(context, info)
    details = str(failure).encode(errors="replace")
    if len(details) > _MAX_DETAILS_BYTES:
        details = details[:_MAX_DETAILS_BYTES] + b"..."
    try:
        return await context.abort(grpc_status(failure.kind), details.decode(errors="ignore"))
    except grpc.aio.InternalError:
        # The client disconnected meanwhile. Otherwise gRPC would log this as an error of the method.
        raise asyncio.CancelledError from None
