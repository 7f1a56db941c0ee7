"""Serve the standard health service (grpc.health.v1) from the current state of the engine."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress
from typing import Any, TypeAlias, cast

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from app.engine.engine import Engine

HEALTH = "grpc.health.v1.Health"
"""Full name of the service."""

_Context: TypeAlias = "grpc.aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]"


class Health:
    """Report SERVING while every model is ready and the server is not stopping.

    Args:
        engine: holds the models.
        services: known service names, besides the empty one, which means the server.
        stopping: set when the server stops, which ends every watch.
        interval: seconds between two polls of a watch.
    """

    def __init__(
        self, engine: Engine, services: Collection[str], stopping: asyncio.Event, interval: float = 1.0
    ) -> None:
        self._engine = engine
        self._services = {"", *services}
        self._stopping = stopping
        self._interval = interval

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of the service."""
        deserialize, serialize = HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(cast("Any", self._check), deserialize, serialize),
            "Watch": grpc.unary_stream_rpc_method_handler(cast("Any", self._watch), deserialize, serialize),
        }
        return grpc.method_handlers_generic_handler(HEALTH, methods)

    async def _check(self, request: HealthCheckRequest, context: _Context) -> HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"No service here is called {request.service[:80]!r}")
        return HealthCheckResponse(status=self._status(request.service))

    async def _watch(self, request: HealthCheckRequest, context: _Context) -> AsyncGenerator[HealthCheckResponse]:
        del context
        reported = None
        while True:
            is_stopping, status = self._stopping.is_set(), self._status(request.service)
            if status != reported:
                reported = status
                yield HealthCheckResponse(status=status)
            if is_stopping:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval)

    def _status(self, service: str) -> HealthCheckResponse.ServingStatus:
        if service not in self._services:
            return HealthCheckResponse.SERVICE_UNKNOWN
        if not self._engine.not_ready_reason and not self._stopping.is_set():
            return HealthCheckResponse.SERVING
        return HealthCheckResponse.NOT_SERVING
