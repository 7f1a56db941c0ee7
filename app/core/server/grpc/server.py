"""Run the gRPC server: the services of all protocols, health, reflection and limits."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

import grpc

from app.core.engine.engine import Engine
from app.core.protocols.grpc_protocol import GrpcProtocol
from app.core.server.auth.grpc_access import with_audit
from app.core.server.grpc.calls_in_flight import CallsInFlight
from app.core.server.grpc.interceptors import DrainInterceptor
from app.core.server.grpc.own_services import HEALTH, REFLECTION, Health, MessageParser, Reflection
from app.core.server.listen import ListenError, open_listen_socket
from app.core.server.tls import Certificates
from app.core.settings.network import TransportSettings
from app.core.settings.server import ServerSettings

_KEEPALIVE_SECONDS = 60
_KEEPALIVE_TIMEOUT_SECONDS = 20
"""A vanished client is detected after this time; the default would be two hours."""

_IDLE_SECONDS = 300
"""Connections without a call close after this time, as over HTTP. Clients reconnect when needed."""

_PING_SECONDS = 10
"""Minimum interval of client pings, which keeps a connection through most networks."""

_PING_STRIKES = 2

_ABORT_SECONDS = 2.0
"""Seconds after the drain timeout in which the calls left are ended."""

_PENDING_CONNECTIONS = 2
"""Connections full of calls that may wait for Python. A tenth of it would cancel calls of a single client with many
threads; the core's default of 1000 calls lets a flood delay others by a second."""

_MAX_OPTION = 2**31 - 1
_MAX_SECONDS = 24 * 3600
"""gRPC's core has options of 32 bits, also for milliseconds."""


class GrpcServer:
    """Serve gRPC until stopped. All methods except the constructor run in the event loop.

    Attributes:
        port: the port it listens on; the actual one after the start.
        more_ports: further ports with the same services, by name; as `port`.
    """

    def __init__(
        self,
        engine: Engine,
        protocols: Sequence[GrpcProtocol],
        settings: ServerSettings,
        *,
        more_ports: Mapping[str, int] = {},
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        certificates: Certificates | None = None,
    ) -> None:
        self.port = settings.grpc_port
        self.more_ports = dict(more_ports)
        self._engine = engine
        self._protocols = protocols
        self._settings = settings
        self._interceptors = interceptors
        self._drain_interceptor = DrainInterceptor()
        self._calls = CallsInFlight()
        self._certificates = certificates
        self._server: grpc.aio.Server | None = None
        self._stopping = asyncio.Event()
        self._stopped: asyncio.Future[None] | None = None

    @property
    def ports(self) -> Sequence[int]:
        """Return all its ports."""
        return [self.port, *self.more_ports.values()]

    def check_addresses(self) -> None:
        """Check that its addresses are free, before anything starts. Raise ListenError if one is in use."""
        with ExitStack() as stack:
            for port in self.ports:
                stack.enter_context(open_listen_socket(self._settings.host, port))

    async def start(self) -> None:
        """Start to listen and serve. Raise ListenError if the address cannot be bound."""
        options = [
            ("grpc.max_receive_message_length", self._settings.max_request_bytes),
            ("grpc.max_send_message_length", -1),
            # Otherwise two servers on one port would silently share the calls.
            ("grpc.so_reuseport", 0),
            *connection_options(self._settings),
        ]
        server = grpc.aio.server(
            options=[(name, min(value, _MAX_OPTION)) for name, value in options],
            interceptors=[self._drain_interceptor, *self._interceptors],
        )
        names = [protocol.service.full_name for protocol in self._protocols]
        for protocol in self._protocols:
            handlers = protocol.handlers(self._engine, self._stopping)
            methods = with_audit(protocol, {name: self._calls.track(handler) for name, handler in handlers.items()})
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(protocol.service.full_name, dict(methods)),)
            )
        parser = MessageParser()
        reflection = Reflection(parser, [*names, HEALTH], [protocol.service.file for protocol in self._protocols])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(REFLECTION, reflection.handlers),))
        # Registered methods have queues of their own in gRPC's core, so probes do not wait behind a flood of calls.
        cast("Any", server).add_registered_method_handlers(
            HEALTH, Health(self._engine, parser, names, self._stopping).handlers
        )
        self.port = self._bind(server, self.port)
        self.more_ports = {name: self._bind(server, port) for name, port in self.more_ports.items()}
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Reject new calls, let calls in flight finish within the drain timeout, and end the rest with UNAVAILABLE."""
        self.start_shutdown()
        if self._stopped is not None:
            await self._stopped

    def start_shutdown(self) -> None:
        """Start the stop without waiting for it, so that other parts can stop in parallel."""
        if self._server is None or self._stopped is not None:
            return
        self._stopping.set()
        self._stopped = asyncio.ensure_future(self._shut_down(self._server))

    async def _shut_down(self, server: grpc.aio.Server) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_timeout
        await self._drain_interceptor.drain(self._settings.drain_timeout / 2)
        stopped = asyncio.create_task(server.stop(max(0.0, deadline - loop.time()) + _ABORT_SECONDS))
        await self._drain_interceptor.release()
        finished, _ = await asyncio.wait({stopped}, timeout=max(0.0, deadline - loop.time()))
        if not finished:
            self._engine.abort_calls()
            self._calls.abort()
        await stopped

    def _bind(self, server: grpc.aio.Server, port: int) -> int:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        try:
            if self._certificates is None:
                return server.add_insecure_port(f"{host}:{port}")
            return server.add_secure_port(f"{host}:{port}", self._certificates.grpc_credentials())
        except RuntimeError:
            raise ListenError(self._settings.host, port, "gRPC cannot use the address") from None


def connection_options(settings: TransportSettings) -> list[tuple[str, int]]:
    """Return the options of a server. Connections have no maximum age: a working one is kept."""
    return [
        ("grpc.max_concurrent_streams", settings.max_grpc_streams),
        # Calls that wait for Python. Above the first number some are rejected, above the second all.
        ("grpc.server.max_pending_requests", _PENDING_CONNECTIONS * settings.max_grpc_streams),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _PENDING_CONNECTIONS * settings.max_grpc_streams),
        # It rejects valid calls, because it counts completed ones until Python releases them.
        ("grpc.http.overload_protection", 0),
        # Between the two limits gRPC rejects calls at random, so both are equal.
        ("grpc.max_metadata_size", settings.max_header_bytes),
        ("grpc.absolute_max_metadata_size", settings.max_header_bytes),
        ("grpc.server_handshake_timeout_ms", _milliseconds(settings.handshake_timeout)),
        ("grpc.max_connection_idle_ms", _milliseconds(_IDLE_SECONDS)),
        ("grpc.keepalive_time_ms", _milliseconds(_KEEPALIVE_SECONDS)),
        ("grpc.keepalive_timeout_ms", _milliseconds(_KEEPALIVE_TIMEOUT_SECONDS)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _milliseconds(_PING_SECONDS)),
        ("grpc.http2.max_ping_strikes", _PING_STRIKES),
    ]


def _milliseconds(seconds: float) -> int:
    return max(1, round(min(seconds, _MAX_SECONDS) * 1000))
