"""The gRPC server: every protocol's service, health, reflection, limits."""

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from app.engine.engine import Engine
from app.protocols.grpc_protocol import GrpcProtocol
from app.server.access.calls import audited
from app.server.grpc_connections import connection_options
from app.server.grpc_door import Door
from app.server.health import HEALTH, Health
from app.server.listening import ListenError, listener, shown
from app.server.tls import Certificates
from app.settings.transport import TransportSettings

__all__ = ("GrpcServer",)

_LONGEST_SOCKET = 103
"""Bytes of a socket's path that every system takes: `sun_path` has 104 on BSD, 108 on Linux."""


class GrpcServer:
    """Serves until stopped. Everything but its making happens in the event loop.

    Args:
        engine: answers the inferences.
        protocols: whose services to serve.
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        max_request_bytes: gRPC refuses a larger message with RESOURCE_EXHAUSTED, compressed ones by their real size.
        drain_timeout: seconds that calls in flight are given at the end.
        interceptors: what calls go through first.
        transport: what connections may cost.
        certificates: what TLS is spoken with; None for no TLS.

    Attributes:
        port: what it listens on, the real one once started.
        failure: why it could not be started, if so.
    """

    def __init__(
        self,
        engine: Engine,
        protocols: Sequence[GrpcProtocol],
        *,
        host: str,
        port: int,
        max_request_bytes: int,
        drain_timeout: float,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        transport: TransportSettings = TransportSettings(),  # noqa: B008  frozen
        certificates: Certificates | None = None,
    ) -> None:
        self.port = port
        self.failure: ListenError | None = None
        self._engine = engine
        self._protocols = protocols
        self._host = host
        self._max_request_bytes = max_request_bytes
        self._drain_timeout = drain_timeout
        self._interceptors = interceptors
        self._door = Door()
        self._transport = transport
        self._certificates = certificates
        self._private: tempfile.TemporaryDirectory[str] | None = None
        self._server: grpc.aio.Server | None = None
        self._stopping: asyncio.Event | None = None
        self._stopped: asyncio.Future[None] | None = None

    @property
    def inside(self) -> str:
        """Where this process itself finds it, without a certificate."""
        return f"{shown(self._host)}:{self.port}" if self._private is None else f"unix:{self._private.name}/grpc"

    def check(self) -> None:
        """See whether the address is free, before anything is started.

        Raises:
            ListenError: when it is not.
        """
        listener(self._host, self.port).close()

    async def start(self) -> None:
        """Listen and answer.

        Raises:
            ListenError: when the address cannot be listened on.
        """
        self._stopping = stopping = asyncio.Event()
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._max_request_bytes),
                ("grpc.max_send_message_length", -1),
                # Two servers on one port would share the calls between them, unnoticed.
                ("grpc.so_reuseport", 0),
                *connection_options(self._transport),
            ],
            interceptors=[self._door, *self._interceptors],
        )
        names = [each.service.full_name for each in self._protocols]
        for protocol in self._protocols:
            methods = audited(protocol, protocol.handlers(self._engine, stopping))
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(protocol.service.full_name, dict(methods)),)
            )
        server.add_generic_rpc_handlers((Health(self._engine, names, stopping).handler,))
        described = [*names, HEALTH, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(described, server, pool=_described(self._protocols))
        self.port = self._bound(server)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Take no more calls, let those in flight finish within the drain timeout, and cut off the rest."""
        self.begin_to_stop()
        if self._stopped is not None:
            await self._stopped
        if self._private is not None:
            self._private.cleanup()

    def begin_to_stop(self) -> None:
        """As `stop`, which then waits for less: whatever else stops meanwhile need not come after it."""
        if self._server is None or self._stopping is None or self._stopped is not None:
            return
        self._stopping.set()
        self._stopped = asyncio.ensure_future(self._end(self._server))

    async def _end(self, server: grpc.aio.Server) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._drain_timeout
        await self._door.close(self._drain_timeout / 2)
        await server.stop(max(0.0, end - loop.time()))

    def _bound(self, server: grpc.aio.Server) -> int:
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            if self._certificates is None:
                return server.add_insecure_port(f"{host}:{self.port}")
            with suppress(OSError):
                self._private = _private_port(server)
            return server.add_secure_port(f"{host}:{self.port}", self._certificates.for_grpc())
        except RuntimeError:
            self.failure = ListenError(f"Cannot listen on {self._host}:{self.port} for gRPC")
            raise self.failure from None


def _private_port(server: grpc.aio.Server) -> tempfile.TemporaryDirectory[str] | None:
    """A folder that nobody else may enter, with a socket in it; None where its name is too long for one.

    Raises:
        OSError: where nothing can be written. The page does without gRPC then.
    """
    folder = tempfile.TemporaryDirectory(prefix="charioteer-", ignore_cleanup_errors=True)
    if len(f"{folder.name}/grpc".encode()) > _LONGEST_SOCKET:
        folder.cleanup()
        return None
    server.add_insecure_port(f"unix:{folder.name}/grpc")
    return folder


def _described(protocols: Sequence[GrpcProtocol]) -> DescriptorPool:
    """Everything that reflection tells of, from whatever pools the protocols keep it in."""
    pool = DescriptorPool()
    added: set[str] = set()

    def add(file: Any) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for each in file.dependencies:
            add(each)
        pool.AddSerializedFile(file.serialized_pb)

    for file in (*(each.service.file for each in protocols), health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        add(file)
    return pool
