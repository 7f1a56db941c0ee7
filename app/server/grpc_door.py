"""Calls that come while the gRPC server begins to stop."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import grpc

from app.server.health import HEALTH

__all__ = ("Door",)

_LULL_SECONDS = 0.05
_LONGEST_SECONDS = 2.0
_PATIENCE_SECONDS = 0.2


class Door(grpc.aio.ServerInterceptor):
    """Lets calls in, until it is closed.

    When a server stops, gRPC's core cancels the calls that Python has not taken from it yet, of which senders hear
    CANCELLED, as if they had given up (grpc/grpc, issue 41785). So they are taken first, and told UNAVAILABLE, upon
    which clients try again elsewhere.
    """

    def __init__(self) -> None:
        self._closed = False
        self._refused = 0

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        if not self._closed or handler_call_details.method.startswith(f"/{HEALTH}/"):
            return await continuation(handler_call_details)
        self._refused += 1
        return _REFUSAL

    async def close(self, most: float) -> None:
        """Refuse calls from now on; done when no more of them come, or after `most` seconds at the latest."""
        self._closed = True
        loop = asyncio.get_running_loop()
        latest = loop.time() + min(most, _LONGEST_SECONDS)
        while (began := loop.time()) < latest:
            refused = self._refused
            await asyncio.sleep(_LULL_SECONDS)
            # A loop that comes round late has not seen what waits.
            if refused == self._refused and loop.time() - began < 2 * _LULL_SECONDS:
                return


async def _refuse(requests: AsyncIterable[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
    # Who is refused before anything was sent hears of a fault of the sending library instead.
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            async for _ in requests:
                break
    await context.abort(grpc.StatusCode.UNAVAILABLE, "The server stops")


_REFUSAL = cast("object", grpc.stream_stream_rpc_method_handler(cast("Any", _refuse)))
"""Of calls of every kind."""
