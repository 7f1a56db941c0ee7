"""The gRPC service of GRPS, `grps.protos.v1.GrpsService`.

Calls always have the gRPC status OK; errors are in the status of the message.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, cast

import grpc

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.grpc_protocol import Call, GrpcProtocol, Handler, read_call_info, unary_handler
from app.core.protocols.protocol import Permission, report_rejections
from app.core.wire.protobuf_limits import parse_message
from app.plugins.grps.calls import PLAIN_CALLS, PlainCall, error_message
from app.plugins.grps.codec import GrpsCodec, queue_of
from app.plugins.grps.messages import GrpsMessage
from app.plugins.grps.proto import GRPS
from tasks.inference.error import InferenceError


class GrpsGrpc(GrpcProtocol):
    """GRPS; a server that is not ready has the code 503, as in the C++ server."""

    name = "grps-grpc"
    service = GRPS
    permissions: Mapping[str, Permission] = {
        **{name: call.permission for name, call in PLAIN_CALLS.items()},
        "Predict": "infer",
        "PredictStreaming": "infer",
    }
    queued_methods = frozenset({"Predict", "PredictStreaming"})

    def rejection_message(self, error: InferenceError, /) -> bytes | None:
        return _serialize(error_message(error))

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        del stopping

        async def predict(data: bytes, context: RequestContext) -> bytes:
            codec: GrpsCodec | None = None
            try:
                codec, model = _create_codec(engine, data, context)
                return await engine.handle(
                    context, model, codec.decode, lambda response: _serialize(codec.encode(response))
                )
            except InferenceError as error:
                return _serialize(error_message(codec.map_error_path(error) if codec else error))

        async def predict_streaming(data: bytes, call: Call) -> AsyncGenerator[bytes]:
            codec: GrpsCodec | None = None
            context = read_call_info(call, self.name)
            try:
                codec, model = _create_codec(engine, data, context)
                outputs = codec.stream(engine, context, model, _serialize)
                async with aclosing(outputs):
                    async for output in outputs:
                        yield output
            except InferenceError as error:
                yield _serialize(error_message(codec.map_error_path(error) if codec else error))

        streaming_handler = cast("Handler", grpc.unary_stream_rpc_method_handler(cast("Any", predict_streaming)))
        return {
            **{
                name: unary_handler(self.name, partial(_answer_plain, engine, call))
                for name, call in PLAIN_CALLS.items()
            },
            "Predict": unary_handler(self.name, predict),
            "PredictStreaming": streaming_handler,
        }


def _create_codec(engine: Engine, data: bytes, context: RequestContext) -> tuple[GrpsCodec, str]:
    """Return the codec of a message, and the model in whose queue it waits."""
    # Parse in the event loop: parsing holds the GIL in any thread, and the model names the queue.
    with report_rejections(engine, context):
        message = parse_message(GrpsMessage, data, engine.limits)
    return GrpsCodec(engine.registry, lambda: (message, False)), queue_of(engine.registry, message.model)


async def _answer_plain(engine: Engine, call: PlainCall, data: bytes, _: RequestContext) -> bytes:
    try:
        return await call.respond(engine, lambda: parse_message(GrpsMessage, data, engine.limits), _serialize)
    except InferenceError as error:
        return _serialize(error_message(error))


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()
