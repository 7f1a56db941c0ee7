"""Parse the messages of gRPC's own services here: gRPC answers a malformed one with UNKNOWN and logs a traceback."""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from app.protocols.grpc_protocol import Call, Handler, address_of_call
from app.server.logs.sampling import LogSampler


class MessageParsing(grpc.aio.ServerInterceptor):
    """Reject malformed protobuf messages to the health and reflection services with INVALID_ARGUMENT.

    The methods of the protocols take bytes and parse them themselves.
    """

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger("charioteer.grpc")
        self._sampler = LogSampler()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        method: str = handler_call_details.method

        async def parse(data: bytes, context: Call) -> Any:
            try:
                return handler.request_deserializer(data)
            except DecodeError:
                self._report(method, context)
            return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The message cannot be parsed as protobuf")

        return _with_parsed_requests(handler, parse)

    def _report(self, method: str, context: Call) -> None:
        fields = self._sampler.sample()
        if fields is not None:
            self._log.warning("malformed gRPC message", method=method, address=address_of_call(context), **fields)


def _with_parsed_requests(handler: Any, parse: Callable[[bytes, Call], Awaitable[Any]]) -> Handler:
    """Return a copy of `handler` that takes requests as bytes."""

    async def parse_all(messages: AsyncIterable[bytes], context: Call) -> AsyncGenerator[Any]:
        async for message in messages:
            yield await parse(message, context)

    async def unary_unary(data: bytes, context: Call) -> Any:
        return await handler.unary_unary(await parse(data, context), context)

    async def unary_stream(data: bytes, context: Call) -> AsyncGenerator[Any]:
        async for answer in handler.unary_stream(await parse(data, context), context):
            yield answer

    async def stream_stream(messages: AsyncIterable[bytes], context: Call) -> AsyncGenerator[Any]:
        async for answer in handler.stream_stream(parse_all(messages, context), context):
            yield answer

    # Untyped: grpc's factories leave the types of messages open.
    factories: Any = grpc
    serializer = handler.response_serializer
    if handler.unary_unary is not None:
        return factories.unary_unary_rpc_method_handler(unary_unary, None, serializer)
    if handler.unary_stream is not None:
        return factories.unary_stream_rpc_method_handler(unary_stream, None, serializer)
    return factories.stream_stream_rpc_method_handler(stream_stream, None, serializer)
