"""Calls that arrive while a gRPC server starts to stop."""

import asyncio
from collections import Counter
from typing import Any, cast

import grpc
import pytest

from app.server.grpc.interceptors import DrainInterceptor

METHOD = "/a.B/C"
HEALTH = "/grpc.health.v1.Health/Check"
CALLS = 200


async def echo(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    del context
    return request


def generic_handler(service: str, name: str) -> grpc.GenericRpcHandler:
    handler = cast("Any", grpc).unary_unary_rpc_method_handler(echo)
    return grpc.method_handlers_generic_handler(service, {name: handler})


async def call(channel: grpc.aio.Channel, method: str = METHOD) -> str:
    try:
        response = await cast("Any", channel).unary_unary(method)(b"x")
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name} {error.details()}"
    return response.decode()


@pytest.mark.parametrize("streaming", [False, True])
def test_closed_interceptor_refuses_calls_but_not_health_checks(streaming: bool) -> None:
    async def run() -> None:
        interceptor = DrainInterceptor()
        server = grpc.aio.server(interceptors=[interceptor])
        server.add_generic_rpc_handlers(
            (generic_handler("a.B", "C"), generic_handler("grpc.health.v1.Health", "Check"))
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await call(channel) == "x"
            await interceptor.drain(1.0)
            if streaming:
                stream = cast("Any", channel).stream_stream(METHOD)()
                with pytest.raises(grpc.aio.AioRpcError, match="The server stops"):
                    await stream.read()
            else:
                assert await call(channel) == "UNAVAILABLE The server stops"
            assert await call(channel, HEALTH) == "x"
        await server.stop(None)

    asyncio.run(run())


def test_calls_that_arrive_during_the_stop_are_not_cancelled() -> None:
    async def run() -> None:
        interceptor = DrainInterceptor()
        server = grpc.aio.server(interceptors=[interceptor])
        server.add_generic_rpc_handlers((generic_handler("a.B", "C"),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await call(channel) == "x"
            calls = [asyncio.create_task(call(channel)) for _ in range(CALLS)]
            await asyncio.sleep(0)
            await interceptor.drain(60.0)
            await server.stop(60.0)
            outcomes = Counter(await asyncio.gather(*calls))
        assert sum(outcomes.values()) == CALLS
        assert [outcome for outcome in outcomes if outcome.startswith("CANCELLED")] == []

    asyncio.run(run())
