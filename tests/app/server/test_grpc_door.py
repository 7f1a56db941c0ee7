"""Calls that come while a gRPC server begins to stop."""

import asyncio
from collections import Counter
from typing import Any, cast

import grpc
import pytest

from app.server.grpc_door import Door

METHOD = "/a.B/C"
HEALTH = "/grpc.health.v1.Health/Check"
CALLS = 200


async def echo(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    del context
    return request


def methods(service: str, name: str) -> grpc.GenericRpcHandler:
    handler = cast("Any", grpc).unary_unary_rpc_method_handler(echo)
    return grpc.method_handlers_generic_handler(service, {name: handler})


async def asked(channel: grpc.aio.Channel, method: str = METHOD) -> str:
    try:
        answer = await cast("Any", channel).unary_unary(method)(b"x")
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name} {error.details()}"
    return answer.decode()


@pytest.mark.parametrize("several", [False, True])
def test_a_call_of_any_kind_is_refused_once_it_is_closed_and_probes_are_not(several: bool) -> None:
    async def run() -> None:
        door = Door()
        server = grpc.aio.server(interceptors=[door])
        server.add_generic_rpc_handlers((methods("a.B", "C"), methods("grpc.health.v1.Health", "Check")))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await asked(channel) == "x"
            await door.close(1.0)
            if several:
                stream = cast("Any", channel).stream_stream(METHOD)()
                with pytest.raises(grpc.aio.AioRpcError, match="The server stops"):
                    await stream.read()
            else:
                assert await asked(channel) == "UNAVAILABLE The server stops"
            assert await asked(channel, HEALTH) == "x"
        await server.stop(None)

    asyncio.run(run())


def test_calls_that_were_not_taken_yet_are_not_cancelled() -> None:
    async def run() -> None:
        door = Door()
        server = grpc.aio.server(interceptors=[door])
        server.add_generic_rpc_handlers((methods("a.B", "C"),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await asked(channel) == "x"
            calls = [asyncio.create_task(asked(channel)) for _ in range(CALLS)]
            await asyncio.sleep(0)
            await door.close(5.0)
            await server.stop(5.0)
            found = Counter(await asyncio.gather(*calls))
        assert sum(found.values()) == CALLS
        assert [each for each in found if each.startswith("CANCELLED")] == []

    asyncio.run(run())
