"""What a gRPC protocol offers the server, and what all of them do with callers and errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import unquote

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from app.engine.admission import LONGEST_TIMEOUT, RETRY_AFTER
from app.engine.engine import Engine
from app.engine.events import Caller
from app.engine.ids import request_id as made_request_id
from app.protocols.caller import BASE_ID_HEADER, CLIENT, REQUEST_ID_HEADER, TRACE_HEADERS, given_id
from app.protocols.permission import Permission
from app.protocols.status import grpc_status
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = (
    "PUSHBACK",
    "Call",
    "GrpcProtocol",
    "Handler",
    "address_of_call",
    "call_ended",
    "caller_of_call",
    "metadata_of",
    "unary",
)

# Quoted, because grpc's classes are generic to type checkers alone.
Call: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"

PUSHBACK = "grpc-retry-pushback-ms"
"""How clients that retry are told to wait (gRPC's proposal A6)."""

_LONGEST_DETAILS = 2000
"""Bytes of UTF-8. Details travel percent-encoded in headers, which clients begin to refuse at 8 KiB altogether."""

_logger = logging.getLogger(__name__)


class GrpcProtocol(Protocol):
    """One service: its name for settings and logs, its descriptor for reflection, and its methods over an engine."""

    @property
    def name(self) -> str: ...

    @property
    def service(self) -> ServiceDescriptor: ...

    @property
    def permissions(self) -> Mapping[str, Permission]:
        """What a caller has to be allowed, by the names of the methods that need something else than ``infer``."""
        ...

    def subject(self, data: bytes, /) -> str:
        """The model that a serialized message to a method for ``admin`` is about; empty where it is about none."""
        ...

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        """The methods by name, serialized messages in and out. Streams end early once the server is `stopping`."""
        ...


def metadata_of(context: Call) -> Mapping[str, str]:
    """What came beside the messages; of a key that came twice, the last."""
    pairs = cast("tuple[tuple[str, str | bytes], ...]", context.invocation_metadata() or ())
    return {key: value for key, value in pairs if isinstance(value, str)}


def caller_of_call(context: Call, protocol: str) -> Caller:
    """The sender; one without a request id is given one. Either id goes back in the trailing metadata."""
    metadata = metadata_of(context)
    request_id = given_id(metadata.get(REQUEST_ID_HEADER)) or made_request_id()
    base_id = given_id(metadata.get(BASE_ID_HEADER))
    returned = {REQUEST_ID_HEADER: request_id}
    if base_id:
        returned[BASE_ID_HEADER] = base_id
    trace = {name: value for name in TRACE_HEADERS if (value := given_id(metadata.get(name))) is not None}
    remaining = cast("float | None", context.time_remaining())
    caller = Caller(
        protocol=protocol,
        request_id=request_id,
        base_id=base_id,
        trace=trace,
        returned=returned,
        # Some clients give every call a deadline, of years where they have none to give.
        timeout=remaining if remaining is not None and remaining <= LONGEST_TIMEOUT else None,
        client=CLIENT.get(),
        address=address_of_call(context),
    )
    _return_headers(context, caller)
    return caller


def address_of_call(context: Call) -> str:
    """Where a call comes from, without its port; empty where that is not known."""
    # Such as ipv4:127.0.0.1:50051, or ipv6:[::1]:50051 with the brackets percent-encoded.
    found = context.peer()
    if not found.startswith(("ipv4:", "ipv6:")):
        return ""
    return unquote(found[5:]).rpartition(":")[0].strip("[]")


def _return_headers(context: Call, caller: Caller) -> None:
    """Put what the sender is to be told into the trailing metadata, as far as that is known by now."""
    returned = dict(caller.returned)
    if RETRY_AFTER in returned:
        returned[PUSHBACK] = str(int(returned.pop(RETRY_AFTER)) * 1000)
    context.set_trailing_metadata(tuple(returned.items()))


def unary(protocol: str, answer: Callable[[bytes, Caller], Awaitable[bytes]]) -> Handler:
    """The method that `answer` answers; what it raises ends the call with the status of its kind."""

    async def handle(data: bytes, context: Call) -> bytes:
        caller = caller_of_call(context, protocol)
        try:
            answered = await answer(data, caller)
            _return_headers(context, caller)
            return answered
        except Exception as error:  # noqa: BLE001  grpc would tell the sender whatever it is
            failure = error
        return await call_ended(context, caller, failure)

    return cast("Handler", grpc.unary_unary_rpc_method_handler(cast("Any", handle)))


async def call_ended(context: Call, caller: Caller, failure: Exception) -> bytes:
    """End a call because of `failure`. Nothing but an `InferenceError` is told to the sender; the rest is logged."""
    if not isinstance(failure, InferenceError):
        _logger.error("call failed", exc_info=failure, extra={"request_id": caller.request_id})
        message = f"Something went wrong in the server; its log tells what, under request {caller.request_id}"
        failure = InferenceError(ErrorKind.INTERNAL, message)
    _return_headers(context, caller)
    details = str(failure).encode(errors="replace")
    if len(details) > _LONGEST_DETAILS:
        details = details[:_LONGEST_DETAILS] + b"..."
    try:
        return await context.abort(grpc_status(failure.kind), details.decode(errors="ignore"))
    except grpc.aio.InternalError:
        # The sender left at this moment, and nobody is there to be told. gRPC would log it as a fault of the method.
        raise asyncio.CancelledError from None
