"""What GRPS serves over gRPC: `grps.protos.v1.GrpsService`.

The status of a call is OK whatever becomes of it: failures are told in the status of the message.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import grpc

from app.engine.engine import Engine
from app.engine.events import Caller
from app.engine.streaming import Piece
from app.protocols.grpc_protocol import Call, Handler, caller_of_call, unary
from app.protocols.grps import calls
from app.protocols.grps.codec import PredictCall
from app.protocols.grps.failures import failed
from app.protocols.grps.messages import read_message
from app.protocols.pb import GRPS
from app.protocols.permission import Permission
from tasks.exchange.error import InferenceError

__all__ = ("GrpsGrpc",)

Answer = Callable[[bytes, Caller], Awaitable[bytes]]


class GrpsGrpc:
    """GRPS; its readiness says 503 as the C++ server's does."""

    name = "grps-grpc"
    service = GRPS
    permissions: Mapping[str, Permission] = {
        "Online": "admin",
        "Offline": "admin",
        "CheckLiveness": "open",
        "CheckReadiness": "open",
    }

    def subject(self, data: bytes, /) -> str:
        del data
        return ""

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        del stopping

        async def predict(data: bytes, caller: Caller) -> bytes:
            call = _asked(engine, data)
            try:
                return await engine.exchange(caller, "", call.decode, lambda each: _written(call.encode(each)))
            except InferenceError as error:
                return _written(failed(call.localised(error)))

        async def predict_streaming(data: bytes, context: Call) -> AsyncGenerator[bytes]:
            caller = caller_of_call(context, self.name)
            call = _asked(engine, data)

            def encode_piece(piece: Piece) -> bytes | None:
                message = call.encode_piece(piece)
                return None if message is None else _written(message)

            parts = engine.parts(caller, "", call.decode, lambda each: _written(call.encode(each)), encode_piece)
            try:
                async with aclosing(parts):
                    async for part in parts:
                        yield part
            except InferenceError as error:
                yield _written(failed(call.localised(error)))

        methods: Mapping[str, Answer] = {
            "Predict": predict,
            "Online": _telling(lambda _: calls.set_online(engine, True)),
            "Offline": _telling(lambda _: calls.set_online(engine, False)),
            "CheckLiveness": _telling(lambda _: calls.live()),
            "CheckReadiness": _telling(lambda _: calls.ready(engine)),
            "ServerMetadata": _describing(lambda _: calls.server_metadata(engine)),
            "ModelMetadata": _describing(lambda data: calls.model_metadata(engine, read_message(data, engine.limits))),
        }
        streamed = cast("Handler", grpc.unary_stream_rpc_method_handler(cast("Any", predict_streaming)))
        return {**{name: unary(self.name, answer) for name, answer in methods.items()}, "PredictStreaming": streamed}


def _asked(engine: Engine, data: bytes) -> PredictCall:
    return PredictCall(engine.registry, lambda: (read_message(data, engine.limits), False))


def _telling(call: Callable[[bytes], Any]) -> Answer:
    async def answer(data: bytes, caller: Caller) -> bytes:
        del caller
        return _told(call, data)

    return answer


def _describing(call: Callable[[bytes], Any]) -> Answer:
    """As `_telling`, for what takes longer than the event loop has: YAML of every label of every model."""

    async def answer(data: bytes, caller: Caller) -> bytes:
        del caller
        return await asyncio.to_thread(_told, call, data)

    return answer


def _told(call: Callable[[bytes], Any], data: bytes) -> bytes:
    try:
        return _written(call(data))
    except InferenceError as error:
        return _written(failed(error))


def _written(message: Any) -> bytes:
    return message.SerializeToString()
