"""Reject calls while the server is overloaded, before any of their messages is read."""

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Any, cast

import grpc

from app.engine.engine import Engine
from app.engine.request_context import RequestContext
from app.protocols.grpc_protocol import Call, GrpcProtocol, read_call_info, set_trailing_metadata
from app.server.transport.load_shedding import OVERLOADED, RefusalCounts
from tasks.inference.error import ErrorKind, InferenceError


class CallShedder(grpc.aio.ServerInterceptor):
    """Reject inferences above the limits. It runs before authentication, so it reveals nothing about models."""

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
        error = InferenceError(ErrorKind.OVERLOADED, OVERLOADED, retry_after=overload.retry_after)

        async def refuse(requests: AsyncIterable[bytes], call: Call) -> AsyncGenerator[bytes]:
            del requests
            context = read_call_info(call, protocol.name)
            self._counts.add(protocol.name, context.request_id)
            message = protocol.refusal_message(error)
            if message is not None:
                yield message
                return
            set_trailing_metadata(call, context, error)
            await call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, OVERLOADED)

        return cast("Any", grpc).stream_stream_rpc_method_handler(refuse)

    def _report(self, protocol: str, request_id: str, count: int) -> None:
        context = RequestContext(protocol=protocol, request_id=request_id, count=count)
        self._engine.report_refused_unread(context, InferenceError(ErrorKind.OVERLOADED, OVERLOADED))
