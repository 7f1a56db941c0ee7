"""End the gRPC calls that outlast the drain timeout."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import grpc

from app.core.engine.cancellation import stopping_error
from app.core.protocols.grpc_protocol import Call, Handler

_GRPC: Any = grpc


class CallsInFlight:
    """Cancel the handlers of calls in flight, and end these calls with UNAVAILABLE.

    gRPC's core would only disconnect their clients: without the ids of the request, and logged as if the clients had
    left.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_aborting = False

    def track(self, handler: Handler) -> Handler:
        """Return a handler of the same kind whose calls `abort` ends."""
        untyped = cast("Any", handler)
        if untyped.unary_unary is not None:
            return _GRPC.unary_unary_rpc_method_handler(self._track_unary(untyped.unary_unary))
        if untyped.unary_stream is not None:
            return _GRPC.unary_stream_rpc_method_handler(self._track_stream(untyped.unary_stream))
        return _GRPC.stream_stream_rpc_method_handler(self._track_stream(untyped.stream_stream))

    def abort(self) -> None:
        """End all calls in flight."""
        self._is_aborting = True
        for task in list(self._tasks):
            task.cancel()

    def _track_unary(self, inner: Any) -> Any:
        async def answer(request: Any, call: Call) -> Any:
            async with self._tracked(call):
                return await inner(request, call)

        return answer

    def _track_stream(self, inner: Any) -> Any:
        async def answer(request: Any, call: Call) -> AsyncGenerator[bytes]:
            async with self._tracked(call), aclosing(inner(request, call)) as responses:
                async for response in responses:
                    yield response

        return answer

    @asynccontextmanager
    async def _tracked(self, call: Call) -> AsyncGenerator[None]:
        """While entered, `abort` ends the call."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._tasks.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_aborting:
                raise
            await call.abort(grpc.StatusCode.UNAVAILABLE, str(stopping_error()))
        finally:
            self._tasks.discard(task)
