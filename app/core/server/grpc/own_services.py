"""Serve gRPC's own services: health (grpc.health.v1) and reflection."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, cast

import grpc
import structlog
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from app.core.engine.engine import Engine
from app.core.protocols.grpc_protocol import Call, Handler, address_of_call
from app.core.server.auth.rate_limiter import LogSampler

HEALTH = "grpc.health.v1.Health"
"""Full name of the service."""

_POLL_SECONDS = 1.0

# Untyped, because grpc's factories leave the types of messages open.
_GRPC: Any = grpc

REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
"""Full name of the service: the version of gRPC's library, which clients also ask for if they prefer version 1."""
REFLECTION_METHOD = "ServerReflectionInfo"


class MessageParser:
    """Parse messages, and reject malformed ones, which gRPC itself answers with UNKNOWN and logs with a traceback."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger("charioteer.grpc")
        self._sampler = LogSampler()

    async def parse(self, message_type: Any, data: bytes, call: Call, method: str) -> Any:
        """Return the message in `data`, or abort the call with INVALID_ARGUMENT."""
        try:
            return message_type.FromString(data)
        except DecodeError:
            fields = self._sampler.sample()
        if fields is not None:
            self._log.warning("malformed gRPC message", method=method, address=address_of_call(call), **fields)
        return await call.abort(grpc.StatusCode.INVALID_ARGUMENT, "The message cannot be parsed as protobuf")


class Health:
    """Report SERVING while every model is ready and the server is not stopping, which ends every watch.

    The server itself is the service with an empty name.
    """

    def __init__(
        self, engine: Engine, parser: MessageParser, services: Collection[str], stopping: asyncio.Event
    ) -> None:
        self._engine = engine
        self._parser = parser
        self._services = {"", *services}
        self._stopping = stopping

    @property
    def handlers(self) -> dict[str, Handler]:
        """Return the handler of each method."""
        serialize = HealthCheckResponse.SerializeToString
        return {
            "Check": _GRPC.unary_unary_rpc_method_handler(self._check, None, serialize),
            "Watch": _GRPC.unary_stream_rpc_method_handler(self._watch, None, serialize),
        }

    async def _check(self, data: bytes, context: Call) -> HealthCheckResponse:
        request = await self._parser.parse(HealthCheckRequest, data, context, f"/{HEALTH}/Check")
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"No service here is called {request.service[:80]!r}")
        return HealthCheckResponse(status=self._status(request.service))

    async def _watch(self, data: bytes, context: Call) -> AsyncGenerator[HealthCheckResponse]:
        request = await self._parser.parse(HealthCheckRequest, data, context, f"/{HEALTH}/Watch")
        reported = None
        while True:
            is_stopping, status = self._stopping.is_set(), self._status(request.service)
            if status != reported:
                reported = status
                yield HealthCheckResponse(status=status)
            if is_stopping:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _POLL_SECONDS)

    def _status(self, service: str) -> HealthCheckResponse.ServingStatus:
        if service not in self._services:
            return HealthCheckResponse.SERVICE_UNKNOWN
        if not self._engine.not_ready_reason and not self._stopping.is_set():
            return HealthCheckResponse.SERVING
        return HealthCheckResponse.NOT_SERVING


class Reflection:
    """Describe all services. Few clients need the libraries: the first call imports them.

    `names` lists all other services. `files` describe the services of protocols.
    """

    def __init__(self, parser: MessageParser, names: Sequence[str], files: Sequence[FileDescriptor]) -> None:
        self._parser = parser
        self._names = names
        self._files = files
        self._servicer: Any = None

    @property
    def handlers(self) -> dict[str, Handler]:
        """Return the handler of its method."""
        serialize = methodcaller("SerializeToString")
        return {REFLECTION_METHOD: _GRPC.stream_stream_rpc_method_handler(self._answer, None, serialize)}

    async def _answer(self, messages: AsyncIterable[bytes], call: Call) -> AsyncGenerator[Any]:
        from grpc_health.v1 import health_pb2
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        if self._servicer is None:
            pool = _ReflectedPool([*self._files, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR])
            self._servicer = reflection.aio.ReflectionServicer([*self._names, REFLECTION], pool=cast("Any", pool))
        kind, method = reflection_pb2.ServerReflectionRequest, f"/{REFLECTION}/{REFLECTION_METHOD}"
        requests = (await self._parser.parse(kind, data, call, method) async for data in messages)
        async for response in self._servicer.ServerReflectionInfo(requests, call):
            yield response


class _ReflectedPool:
    """The descriptors of all services. It also finds the methods of services, which protobuf's pool does not."""

    def __init__(self, files: Sequence[Any]) -> None:
        self._pool = DescriptorPool()
        for file in files:
            self._add(file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802  protobuf's name
        """Return the descriptor of the file that defines `symbol`. Raise KeyError if none does."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            descriptor: Any = self._pool.FindServiceByName(service)
            return descriptor.methods_by_name[method].containing_service.file

    def _add(self, file: Any) -> None:
        for dependency in file.dependencies:
            self._add(dependency)
        self._pool.AddSerializedFile(file.serialized_pb)
