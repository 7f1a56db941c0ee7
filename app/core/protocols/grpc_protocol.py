"""The interface of a gRPC protocol, and the request information and errors that all of them share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import unquote

import grpc
import msgspec
from google.protobuf.descriptor import ServiceDescriptor

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import MAX_TIMEOUT_SECONDS
from app.core.protocols.protocol import Permission
from app.core.protocols.request_info import BASE_ID_HEADER, CLIENT, REQUEST_ID_HEADER, new_context
from app.core.protocols.status import grpc_status
from tasks.inference.error import ErrorKind, InferenceError

# grpc's classes are generic only in its type stubs, so quote them.
Call: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"

PUSHBACK = "grpc-retry-pushback-ms"
"""Trailing metadata: how long clients wait before a retry (gRPC's proposal A6)."""

_MAX_DETAILS_BYTES = 2000
"""In UTF-8. Details travel percent-encoded in headers, and clients reject headers of more than 8 KiB in all."""

_logger = logging.getLogger(__name__)


class GrpcProtocol(Protocol):
    """A service and its methods over an engine.

    Attributes:
        name: the name in settings and logs.
        service: the descriptor, for reflection.
        permissions: the permission for each method by name. A method that is missing requires ``admin``.
        queued_methods: the methods whose call is one inference, which waits in the queue for a worker.
    """

    name: str
    service: ServiceDescriptor
    permissions: Mapping[str, Permission]
    queued_methods: frozenset[str] = frozenset()

    def rejection_message(self, _: InferenceError, /) -> bytes | None:
        """Return the message for a rejected call of `queued_methods`; None if the call ends with a status instead."""
        return None

    def target_model(self, _: bytes, /) -> str:
        """Return the model that a message to an ``admin`` method names; empty if it names none."""
        return ""

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        """Return the methods by name, from message bytes to message bytes. Streams end early when `stopping` is set."""
        ...


class GrpcMethods(msgspec.Struct, frozen=True, kw_only=True):
    """Methods that a plugin adds to the service of another protocol.

    Attributes:
        permissions: as in `GrpcProtocol`.
        handlers: returns the methods by name, as `GrpcProtocol.handlers`.
        target_model: as `GrpcProtocol.target_model`.
    """

    permissions: Mapping[str, Permission]
    handlers: Callable[[Engine], Mapping[str, Handler]]
    target_model: Callable[[bytes], str] = lambda _: ""


def metadata_of(call: Call) -> Mapping[str, str]:
    """Return a call's metadata; if a key appears twice, the last value."""
    pairs: Any = call.invocation_metadata() or ()
    return {key: value for key, value in pairs if isinstance(value, str)}


def read_call_info(call: Call, protocol: str) -> RequestContext:
    """Return information about a call. Make a request id if none was sent; trailing metadata returns both ids."""
    metadata = metadata_of(call)
    context = new_context(metadata, protocol, address_of_call(call))
    remaining: Any = call.time_remaining()
    requested = MAX_TIMEOUT_SECONDS if context.timeout is None else context.timeout
    # Many libraries send a deadline of years for clients without one. A timeout in the metadata that is longer, or NaN,
    # is kept, so that it is rejected later, as over HTTP.
    if remaining is not None and requested <= MAX_TIMEOUT_SECONDS:
        context.timeout = min(remaining, requested)
    context.client = CLIENT.get()
    set_trailing_metadata(call, context)
    return context


def address_of_call(call: Call) -> str:
    """Return the address that a call comes from, without its port; empty if unknown."""
    # A peer is written as ipv4:127.0.0.1:50051, or ipv6:[::1]:50051 with percent-encoded brackets.
    peer = call.peer()
    if not peer.startswith(("ipv4:", "ipv6:")):
        return ""
    address = peer[5:].rpartition(":")[0]
    return (unquote(address) if "%" in address else address).strip("[]")


def set_trailing_metadata(call: Call, context: RequestContext, error: InferenceError | None = None) -> None:
    """Set the ids of a request, its response headers so far, and when to retry after `error`."""
    metadata = {REQUEST_ID_HEADER: context.request_id, **context.response_headers}
    if context.base_id:
        metadata[BASE_ID_HEADER] = context.base_id
    if error is not None and error.retry_after is not None:
        metadata[PUSHBACK] = str(error.retry_after * 1000)
    call.set_trailing_metadata(tuple(metadata.items()))


def unary_handler(
    protocol: str,
    method: Callable[[bytes, RequestContext], Awaitable[bytes]],
    status_of: Callable[[InferenceError], grpc.StatusCode] = lambda error: grpc_status(error.kind),
) -> Handler:
    """Return a handler for `method`. Errors end the call with the status that `status_of` returns."""

    async def handle(data: bytes, call: Call) -> bytes:
        context = read_call_info(call, protocol)
        try:
            response = await method(data, context)
            if context.response_headers:
                set_trailing_metadata(call, context)
            return response
        except Exception as error:  # noqa: BLE001  grpc would send any exception to the client
            failure = error
        return await abort_call(call, context, failure, status_of)

    return cast("Handler", grpc.unary_unary_rpc_method_handler(cast("Any", handle)))


async def abort_call(
    call: Call,
    context: RequestContext,
    failure: Exception,
    status_of: Callable[[InferenceError], grpc.StatusCode] = lambda error: grpc_status(error.kind),
) -> bytes:
    """End a call because of `failure`. Clients see only an `InferenceError`; other exceptions are logged."""
    if not isinstance(failure, InferenceError):
        _logger.error("call failed", exc_info=failure, extra={"request_id": context.request_id})
        message = f"Something went wrong in the server; see its log for request {context.request_id}"
        failure = InferenceError(ErrorKind.INTERNAL, message)
    set_trailing_metadata(call, context, failure)
    details = str(failure).encode(errors="replace")
    if len(details) > _MAX_DETAILS_BYTES:
        details = details[:_MAX_DETAILS_BYTES] + b"..."
    try:
        return await call.abort(status_of(failure), details.decode(errors="ignore"))
    except grpc.aio.InternalError:
        # The client disconnected meanwhile. Otherwise gRPC would log this as an error of the method.
        raise asyncio.CancelledError from None
