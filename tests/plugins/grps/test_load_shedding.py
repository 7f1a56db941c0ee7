"""gRPC calls that an overloaded server refuses before it reads a message."""

import asyncio
from typing import Any, cast

import grpc

from app.core.server.grpc.interceptors import CallShedder
from app.core.server.grpc.server import GrpcServer
from app.core.server.load_shedding import OVERLOADED
from app.plugins.grps.messages import GrpsMessage
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.full_engine import full_engine
from tests.support.servers.grpc_server import local_settings

INFER = "/inference.GRPCInferenceService/ModelInfer"
PREDICT = "/grps.protos.v1.GrpsService/Predict"
LIVE = "/inference.GRPCInferenceService/ServerLive"


def test_overloaded_server_rejects_inferences_unread_but_answers_probes() -> None:
    async def run() -> None:
        with full_engine("detector") as (engine, _):
            shedder = CallShedder(engine, GRPC_PROTOCOLS)
            server = GrpcServer(engine, GRPC_PROTOCOLS, local_settings(), interceptors=[shedder])
            await server.start()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                # Parsing this invalid message would give another error.
                call = cast("Any", channel).unary_unary(INFER)(b"\xff", metadata=(("x-request-id", "mine"),))
                assert (await call.code(), await call.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, OVERLOADED)
                metadata = dict(await call.trailing_metadata())
                assert (metadata["grpc-retry-pushback-ms"], metadata["x-request-id"]) == ("1000", "mine")
                message = GrpsMessage.FromString(await cast("Any", channel).unary_unary(PREDICT)(b"\xff"))
                assert (message.status.code, message.status.msg) == (429, OVERLOADED)
                assert await cast("Any", channel).unary_unary(LIVE)(b"")
            await server.stop()

    asyncio.run(run())
