"""Calls that arrive while a gRPC server starts to stop."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import pytest

from app.core.server.grpc.interceptors import DrainInterceptor
from app.core.server.grpc.server import GrpcServer
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.grpc_server import build_engine, local_settings

METHOD = "/a.B/C"
HEALTH = "/grpc.health.v1.Health/Check"
SERVER_LIVE = "/inference.GRPCInferenceService/ServerLive"


async def echo(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    del context
    return request


def generic_handler(service: str, name: str) -> grpc.GenericRpcHandler:
    handler = cast("Any", grpc).unary_unary_rpc_method_handler(echo)
    return grpc.method_handlers_generic_handler(service, {name: handler})


async def call(channel: grpc.aio.Channel, method: str = METHOD) -> str:
    try:
        response = await cast("Any", channel).unary_unary(method)(b"" if method == SERVER_LIVE else b"x")
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name} {error.details()}"
    return response.decode(errors="replace")


@asynccontextmanager
async def serving(interceptor: DrainInterceptor) -> AsyncGenerator[tuple[grpc.aio.Server, grpc.aio.Channel]]:
    server = grpc.aio.server(interceptors=[interceptor])
    server.add_generic_rpc_handlers((generic_handler("a.B", "C"), generic_handler("grpc.health.v1.Health", "Check")))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await call(channel) == "x"
        yield server, channel
    await server.stop(None)


@pytest.mark.parametrize("streaming", [False, True])
def test_closed_interceptor_rejects_calls_but_not_health_checks(streaming: bool) -> None:
    async def run() -> None:
        interceptor = DrainInterceptor()
        async with serving(interceptor) as (_, channel):
            await interceptor.drain(1.0)
            await interceptor.release()
            if streaming:
                stream = cast("Any", channel).stream_stream(METHOD)()
                with pytest.raises(grpc.aio.AioRpcError, match="The server is stopping"):
                    await stream.read()
            else:
                assert await call(channel) == "UNAVAILABLE The server is stopping"
            assert await call(channel, HEALTH) == "x"

    asyncio.run(run())


def test_clients_that_call_again_at_once_get_no_cancelled_call() -> None:
    engine = build_engine(())
    outcomes: Counter[str] = Counter()

    async def keep_calling(channel: grpc.aio.Channel) -> None:
        while not (outcome := await call(channel, SERVER_LIVE)).startswith(("UNAVAILABLE failed", "CANCELLED")):
            outcomes[outcome] += 1
        outcomes[outcome] += 1

    async def run() -> None:
        server = GrpcServer(engine, GRPC_PROTOCOLS, local_settings(drain_timeout=60))
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            clients = [asyncio.create_task(keep_calling(channel)) for _ in range(16)]
            await call(channel, SERVER_LIVE)
            await server.stop()
            await asyncio.gather(*clients)

    asyncio.run(run())
    engine.close()
    assert outcomes["UNAVAILABLE The server is stopping"] > 0
    assert [outcome for outcome in outcomes if outcome.startswith("CANCELLED")] == []
