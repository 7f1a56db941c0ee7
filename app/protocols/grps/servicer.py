"""The gRPC service of GRPS, `grps.protos.v1.GrpsService`.

Calls always have the gRPC status OK; errors are in the status of the message.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import grpc

from app.engine.engine import Engine
from app.engine.request_context import RequestContext
from app.engine.streams.text_stream import Chunk
from app.proto import GRPS
from app.protocols.grpc_protocol import Call, Handler, read_call_info, unary_handler
from app.protocols.grps import calls
from app.protocols.grps.codec import PredictCodec
from app.protocols.grps.error_messages import error_message
from app.protocols.grps.messages import read_message
from app.protocols.permission import Permission
from tasks.inference.error import InferenceError

__all__ = ("GrpsGrpc",)

UnaryMethod = Callable[[bytes, RequestContext], Awaitable[bytes]]


class GrpsGrpc:
    """GRPS; a server that is not ready has the code 503, as in the C++ server."""

    name = "grps-grpc"
    service = GRPS
    permissions: Mapping[str, Permission] = {
        "Online": "admin",
        "Offline": "admin",
        "CheckLiveness": "open",
        "CheckReadiness": "open",
        "Predict": "infer",
        "PredictStreaming": "infer",
        "ServerMetadata": "infer",
        "ModelMetadata": "infer",
    }
    queued_methods = frozenset({"Predict", "PredictStreaming"})

    def refusal_message(self, error: InferenceError, /) -> bytes | None:
        return _serialize(error_message(error))

    def target_model(self, data: bytes, /) -> str:
        del data
        return ""

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        del stopping

        async def predict(data: bytes, context: RequestContext) -> bytes:
            codec = _create_codec(engine, data)
            try:
                return await engine.handle(
                    context, "", codec.decode, lambda response: _serialize(codec.encode(response))
                )
            except InferenceError as error:
                return _serialize(error_message(codec.map_error_path(error)))

        async def predict_streaming(data: bytes, call: Call) -> AsyncGenerator[bytes]:
            context = read_call_info(call, self.name)
            codec = _create_codec(engine, data)

            def encode_chunk(chunk: Chunk) -> bytes | None:
                message = codec.encode_chunk(chunk)
                return None if message is None else _serialize(message)

            outputs = engine.stream_outputs(
                context, "", codec.decode, lambda response: _serialize(codec.encode(response)), encode_chunk
            )
            try:
                async with aclosing(outputs):
                    async for output in outputs:
                        yield output
            except InferenceError as error:
                yield _serialize(error_message(codec.map_error_path(error)))

        methods: Mapping[str, UnaryMethod] = {
            "Predict": predict,
            "Online": _unary_method(lambda _: calls.set_online(engine, True)),
            "Offline": _unary_method(lambda _: calls.set_online(engine, False)),
            "CheckLiveness": _unary_method(lambda _: calls.live()),
            "CheckReadiness": _unary_method(lambda _: calls.ready(engine)),
            "ServerMetadata": _threaded_method(lambda _: calls.server_metadata(engine)),
            "ModelMetadata": _threaded_method(
                lambda data: calls.model_metadata(engine, read_message(data, engine.limits))
            ),
        }
        streaming_handler = cast("Handler", grpc.unary_stream_rpc_method_handler(cast("Any", predict_streaming)))
        return {
            **{name: unary_handler(self.name, method) for name, method in methods.items()},
            "PredictStreaming": streaming_handler,
        }


def _create_codec(engine: Engine, data: bytes) -> PredictCodec:
    return PredictCodec(engine.registry, lambda: (read_message(data, engine.limits), False))


def _unary_method(operation: Callable[[bytes], Any]) -> UnaryMethod:
    async def method(data: bytes, context: RequestContext) -> bytes:
        del context
        return _response_bytes(operation, data)

    return method


def _threaded_method(operation: Callable[[bytes], Any]) -> UnaryMethod:
    """Like `_unary_method`, but in a thread: YAML of every label would block the event loop."""

    async def method(data: bytes, context: RequestContext) -> bytes:
        del context
        return await asyncio.to_thread(_response_bytes, operation, data)

    return method


def _response_bytes(operation: Callable[[bytes], Any], data: bytes) -> bytes:
    try:
        return _serialize(operation(data))
    except InferenceError as error:
        return _serialize(error_message(error))


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()
