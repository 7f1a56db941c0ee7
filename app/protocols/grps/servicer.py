"""The gRPC service of GRPS, `grps.protos.v1.GrpsService`.

Calls always have the gRPC status OK; errors are in the status of the message.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import grpc

from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.streaming import Piece
from app.proto import GRPS
from app.protocols.grpc_protocol import Call, Handler, caller_of_call, unary
from app.protocols.grps import calls
from app.protocols.grps.codec import PredictCall
from app.protocols.grps.failures import failed
from app.protocols.grps.messages import read_message
from app.protocols.permission import Permission
from tasks.exchange.error import InferenceError

__all__ = ("GrpsGrpc",)

Answer = Callable[[bytes, RequestInfo], Awaitable[bytes]]


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
        return _serialize(failed(error))

    def subject(self, data: bytes, /) -> str:
        del data
        return ""

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        del stopping

        async def predict(data: bytes, caller: RequestInfo) -> bytes:
            call = _predict_call(engine, data)
            try:
                return await engine.exchange(
                    caller, "", call.decode, lambda response: _serialize(call.encode(response))
                )
            except InferenceError as error:
                return _serialize(failed(call.localised(error)))

        async def predict_streaming(data: bytes, context: Call) -> AsyncGenerator[bytes]:
            caller = caller_of_call(context, self.name)
            call = _predict_call(engine, data)

            def encode_chunk(chunk: Piece) -> bytes | None:
                message = call.encode_piece(chunk)
                return None if message is None else _serialize(message)

            parts = engine.parts(
                caller, "", call.decode, lambda response: _serialize(call.encode(response)), encode_chunk
            )
            try:
                async with aclosing(parts):
                    async for part in parts:
                        yield part
            except InferenceError as error:
                yield _serialize(failed(call.localised(error)))

        methods: Mapping[str, Answer] = {
            "Predict": predict,
            "Online": _unary_answer(lambda _: calls.set_online(engine, True)),
            "Offline": _unary_answer(lambda _: calls.set_online(engine, False)),
            "CheckLiveness": _unary_answer(lambda _: calls.live()),
            "CheckReadiness": _unary_answer(lambda _: calls.ready(engine)),
            "ServerMetadata": _threaded_answer(lambda _: calls.server_metadata(engine)),
            "ModelMetadata": _threaded_answer(
                lambda data: calls.model_metadata(engine, read_message(data, engine.limits))
            ),
        }
        streaming_handler = cast("Handler", grpc.unary_stream_rpc_method_handler(cast("Any", predict_streaming)))
        return {
            **{name: unary(self.name, answer) for name, answer in methods.items()},
            "PredictStreaming": streaming_handler,
        }


def _predict_call(engine: Engine, data: bytes) -> PredictCall:
    return PredictCall(engine.registry, lambda: (read_message(data, engine.limits), False))


def _unary_answer(call: Callable[[bytes], Any]) -> Answer:
    async def answer(data: bytes, caller: RequestInfo) -> bytes:
        del caller
        return _response_bytes(call, data)

    return answer


def _threaded_answer(call: Callable[[bytes], Any]) -> Answer:
    """Like `_unary_answer`, but in a thread: YAML of every label would block the event loop."""

    async def answer(data: bytes, caller: RequestInfo) -> bytes:
        del caller
        return await asyncio.to_thread(_response_bytes, call, data)

    return answer


def _response_bytes(call: Callable[[bytes], Any], data: bytes) -> bytes:
    try:
        return _serialize(call(data))
    except InferenceError as error:
        return _serialize(failed(error))


def _serialize(message: Any) -> bytes:
    return message.SerializeToString()
