"""Reject the gRPC calls of an overloaded or stopping server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import grpc

from app.core.engine.cancellation import stopping_error
from app.core.engine.engine import Engine
from app.core.protocols.grpc_protocol import Call, GrpcProtocol, read_call_info, set_trailing_metadata
from app.core.server.grpc.own_services import HEALTH
from app.core.server.load_shedding import OVERLOADED, RejectionCounts
from tasks.inference.error import ErrorKind, InferenceError

_QUIET_SECONDS = 0.05
_QUIET_CHECKS = 2
"""One is not enough on a busy machine, where gRPC's own threads may get no turn for as long."""
_MAX_CLOSE_SECONDS = 1.0
_FIRST_MESSAGE_SECONDS = 0.2


class DrainInterceptor(grpc.aio.ServerInterceptor):
    """Accept calls until closed, then hold them, and reject them with UNAVAILABLE once the server stops.

    When a server stops, gRPC's core cancels calls that Python has not accepted yet. Clients then get CANCELLED, as if
    they had cancelled the call themselves (grpc/grpc, issue 41785). This interceptor accepts these calls first. It
    holds them until clients know that the connection ends: a client that is rejected earlier calls again over the
    same connection, and the core cancels that call.
    """

    def __init__(self) -> None:
        self._is_draining = False
        self._late_calls = 0
        self._released = asyncio.Event()
        self._rejecting_handler = cast("object", grpc.stream_stream_rpc_method_handler(cast("Any", self._reject)))
        """Handler for calls of every kind."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        if not self._is_draining or handler_call_details.method.startswith(f"/{HEALTH}/"):
            return await continuation(handler_call_details)
        self._late_calls += 1
        return self._rejecting_handler

    async def drain(self, max_seconds: float) -> None:
        """Hold all calls from now on. Return when no more arrive, or after `max_seconds` seconds."""
        self._is_draining = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max_seconds, _MAX_CLOSE_SECONDS)
        quiet_checks = 0
        while (started := loop.time()) < deadline and quiet_checks < _QUIET_CHECKS:
            late_before = self._late_calls
            await asyncio.sleep(_QUIET_SECONDS)
            # If the event loop is late, it may not have seen all pending calls.
            is_quiet = late_before == self._late_calls and loop.time() - started < 2 * _QUIET_SECONDS
            quiet_checks = quiet_checks + 1 if is_quiet else 0

    async def release(self) -> None:
        """Reject the held calls. Call it when the server has started to stop."""
        # gRPC's own threads tell clients meanwhile that the connection ends.
        await asyncio.sleep(_QUIET_SECONDS)
        self._released.set()

    async def _reject(self, requests: AsyncIterable[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        # Read one message first: some client libraries report an internal error if the call ends before they send one.
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_MESSAGE_SECONDS):
                async for _ in requests:
                    break
        await self._released.wait()
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(stopping_error()))


class CallShedder(grpc.aio.ServerInterceptor):
    """Reject inferences above the limits. It runs before authentication, so it reveals nothing about models."""

    def __init__(self, engine: Engine, protocols: Sequence[GrpcProtocol]) -> None:
        self._engine = engine
        self._counts = RejectionCounts(engine)
        self._protocols = {
            f"/{protocol.service.full_name}/{name}": protocol
            for protocol in protocols
            for name in protocol.queued_methods
        }

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        protocol = self._protocols.get(handler_call_details.method)
        overload = None if protocol is None or self._engine.admission.has_idle_worker() else self._engine.overload(None)
        if protocol is None or overload is None:
            return await continuation(handler_call_details)
        error = InferenceError(ErrorKind.OVERLOADED, OVERLOADED, retry_after=overload.retry_after)

        async def reject(_: AsyncIterable[bytes], call: Call) -> AsyncGenerator[bytes]:
            context = read_call_info(call, protocol.name)
            self._counts.add(context.request_id, protocol.name)
            message = protocol.rejection_message(error)
            if message is not None:
                yield message
                return
            set_trailing_metadata(call, context, error)
            await call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, OVERLOADED)

        return cast("Any", grpc).stream_stream_rpc_method_handler(reject)
