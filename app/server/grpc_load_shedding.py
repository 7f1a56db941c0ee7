"""Reject calls while the server is overloaded, before any of their messages is read."""

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Any, cast

import grpc

from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.protocols.grpc_protocol import PUSHBACK, Call, GrpcProtocol, read_call_info
from app.protocols.request_info import REQUEST_ID_HEADER
from app.server.load_shedding import OVERLOADED, RefusalCounts
from tasks.inference.error import ErrorKind, InferenceError

__all__ = ("CallShedder",)


class CallShedder(grpc.aio.ServerInterceptor):
    """Reject inferences above the limits. It runs before authentication, so it reveals nothing about models.

    Args:
        engine: runs the inferences.
        protocols: define the methods.
    """

    def __init__(self, engine: Engine, protocols: Sequence[GrpcProtocol]) -> None:
        self._engine = engine
        self._counts = RefusalCounts[str](self._report)
        self._protocols = {
            f"/{protocol.service.full_name}/{name}": protocol
            for protocol in protocols
            for name in protocol.queued_methods
        }

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        protocol = self._protocols.get(handler_call_details.method)
        overload = self._engine.overload(None) if protocol is not None else None
        if protocol is None or overload is None:
            return await continuation(handler_call_details)
        retry_after = overload.retry_after

        async def refuse(requests: AsyncIterable[bytes], context: Call) -> AsyncGenerator[bytes]:
            del requests
            info = read_call_info(context, protocol.name)
            self._counts.add(protocol.name, info.request_id)
            error = InferenceError(ErrorKind.OVERLOADED, OVERLOADED)
            message = protocol.refusal_message(error)
            if message is not None:
                yield message
                return
            metadata = {**info.response_headers, PUSHBACK: str(retry_after * 1000)}
            context.set_trailing_metadata(tuple(metadata.items()))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, OVERLOADED)

        return cast("Any", grpc).stream_stream_rpc_method_handler(refuse)

    def _report(self, protocol: str, request_id: str, count: int) -> None:
        info = RequestInfo(protocol=protocol, request_id=request_id, response_headers={REQUEST_ID_HEADER: request_id})
        self._engine.report_refused_unread(info, InferenceError(ErrorKind.OVERLOADED, OVERLOADED), "", count)
