"""Run the HTTP server below the applications: connections, certificates and their periodic checks."""

import asyncio
import logging
import math
import socket
import sys
from typing import Any, cast

import msgspec
import uvicorn
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry
from uvicorn.config import STARTUP_FAILURE

from app.server.shutdown import DrainingServer, ShutdownHooks
from app.server.transport.acceptor import Acceptor
from app.server.transport.connection import Connection
from app.server.transport.connection_table import TICK_SECONDS, ConnectionTable, raise_file_limit
from app.server.transport.pipelining import ServedApplication
from app.server.transport.tls import CHECK_SECONDS, Certificates, load_certificates
from app.settings.server import ServerSettings

__all__ = ("Transport", "http_server", "open_transport")

_ABORT_SECONDS = 4.0
"""Seconds before the end of the drain at which incomplete requests are rejected. Each connection is checked once a
second and lingers for two seconds after its rejection."""

_logger = logging.getLogger(__name__)


class Transport(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Shared state of all connections.

    Attributes:
        connections: the table of HTTP connections.
        certificates: certificates for TLS on every port; None for no TLS.
    """

    connections: ConnectionTable
    certificates: Certificates | None

    @property
    def scheme(self) -> str:
        """Return the URL scheme of HTTP addresses."""
        return "http" if self.certificates is None else "https"


def open_transport(settings: ServerSettings, metrics: CollectorRegistry) -> Transport:
    """Create the transport from the settings, and raise the limit of open files.

    Raises:
        SettingsError: if the certificates are not usable, or the connection limit is too high.
    """
    certificates = load_certificates(settings)
    if certificates is not None:
        certificates.export_expiry(metrics)
    return Transport(connections=ConnectionTable(settings, metrics, raise_file_limit()), certificates=certificates)


def http_server(app: ASGIApp, transport: Transport, shutdown_hooks: ShutdownHooks) -> uvicorn.Server:
    """Return a server of `app` that is not started.

    Args:
        app: handles all requests.
        transport: shared state of its connections.
        shutdown_hooks: callbacks for the shutdown.
    """
    config = uvicorn.Config(
        cast("Any", app),
        http=Connection,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(shutdown_hooks.drain_timeout),
    )
    return _HttpServer(config, shutdown_hooks, transport)


class _HttpServer(DrainingServer):
    """Extend uvicorn's server with our connections and their periodic checks."""

    def __init__(self, config: uvicorn.Config, shutdown_hooks: ShutdownHooks, transport: Transport) -> None:
        super().__init__(config, msgspec.structs.replace(shutdown_hooks, start_drain=self._start_drain))
        self._transport = transport
        self._start_other_drains = shutdown_hooks.start_drain
        self._periodic_tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        connections, certificates = self._transport.connections, self._transport.certificates
        # The application behind uvicorn's middleware, which reads the proxy headers of trusted addresses.
        application = cast("ASGIApp", cast("Any", self.config).loaded_app)
        served = ServedApplication(app=application, lifespan_state=self.lifespan.state, server_state=self.server_state)

        def create_connection(client_socket: socket.socket, address: str) -> Connection:
            return Connection(connections, client_socket, address, served)

        self._periodic_tasks.append(asyncio.create_task(_check_connections(connections)))
        if certificates is not None:
            self._periodic_tasks.append(asyncio.create_task(_reload_periodically(certificates)))
        acceptors = [
            Acceptor(listen_socket, connections, create_connection, certificates) for listen_socket in sockets or ()
        ]
        self.servers = cast("list[asyncio.base_events.Server]", acceptors)
        self.started = True

    def _start_drain(self) -> None:
        seconds_left = max(0.0, self._hooks.drain_timeout - _ABORT_SECONDS)
        self._transport.connections.reject_incomplete_at = asyncio.get_running_loop().time() + seconds_left
        self._start_other_drains()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().shutdown(sockets)
        finally:
            for task in self._periodic_tasks:
                task.cancel()


async def _check_connections(connections: ConnectionTable) -> None:
    """Check timeouts of connections periodically, also while the server drains."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        try:
            connections.check_next(loop.time())
        except Exception:
            # A failure of one connection must not stop the checks of the others.
            _logger.exception("connection check failed")


async def _reload_periodically(certificates: Certificates) -> None:
    """Reload renewed certificates. Read the files in a thread because they can be slow."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        await asyncio.to_thread(certificates.reload_if_changed)
