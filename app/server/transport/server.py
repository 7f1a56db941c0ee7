"""Run the HTTP server below the applications: connections, certificates, periodic checks, signals and shutdown.

The first signal starts a graceful shutdown, the second one exits without delay.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry
from uvicorn.config import STARTUP_FAILURE

from app.server.transport.acceptor import Acceptor
from app.server.transport.connection import Connection
from app.server.transport.connection_table import TICK_SECONDS, ConnectionTable, raise_file_limit
from app.server.transport.pipelining import ServedApplication
from app.server.transport.tls import CHECK_SECONDS, Certificates, load_certificates
from app.settings.server import ServerSettings

_ABORT_SECONDS = 4.0
"""Seconds before the end of the drain at which incomplete requests are rejected. Each connection is checked once a
second and lingers for two seconds after its rejection."""

_SAME_SIGNAL_SECONDS = 0.2
"""Seconds in which a second signal counts as the first: a terminal and a wrapper can both forward it."""

_LOG_SECONDS = 0.5
_GRACE_SECONDS = 5.0
"""Seconds after the drain timeout in which everything else must close."""

_logger = logging.getLogger(__name__)


class ShutdownHooks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Callbacks of the shutdown, called in the event loop.

    Attributes:
        mark_not_ready: called first: makes the server report not ready, so that load balancers send no more requests.
        start_drain: called when the server stops accepting connections, before it waits for requests in flight.
        drain_delay: seconds between the two.
        drain_timeout: seconds that requests in flight may take.
    """

    mark_not_ready: Callable[[], None]
    start_drain: Callable[[], None]
    drain_delay: float
    drain_timeout: float


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
    """Return a server of `app` that is not started."""
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


class _HttpServer(uvicorn.Server):
    """Extend uvicorn's server with our connections, their periodic checks, and our shutdown."""

    def __init__(self, config: uvicorn.Config, hooks: ShutdownHooks, transport: Transport) -> None:
        super().__init__(config)
        self._hooks = hooks
        self._transport = transport
        self._signalled_at: float | None = None
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        hooks = self._hooks
        hooks.mark_not_ready()
        try:
            if self._signalled_at is not None:
                _logger.info("stopping", extra={"drain_delay": hooks.drain_delay, "drain_timeout": hooks.drain_timeout})
                await asyncio.sleep(hooks.drain_delay)
                _exit_after(hooks.drain_timeout + _GRACE_SECONDS)
            seconds_left = max(0.0, hooks.drain_timeout - _ABORT_SECONDS)
            self._transport.connections.reject_incomplete_at = asyncio.get_running_loop().time() + seconds_left
            hooks.start_drain()
            await super().shutdown(sockets)
        finally:
            for task in self._periodic_tasks:
                task.cancel()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals until the process exits. Unlike uvicorn, never raise them again: the drain handles them."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown after the first signal, and exit after the second."""
        now = time.monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
            super().handle_exit(sig, frame)
        elif now - self._signalled_at >= _SAME_SIGNAL_SECONDS:
            _exit_now(128 + sig, "second stop signal", signal=signal.Signals(sig).name)


def _exit_after(seconds: float) -> None:
    """Exit the process after `seconds`, even if a disk, a trace collector or a thread blocks the shutdown."""

    def wait() -> None:
        time.sleep(seconds)
        _exit_now(1, "shutdown timed out", seconds=seconds)

    with suppress(RuntimeError):
        threading.Thread(target=wait, name="end", daemon=True).start()


def _exit_now(status: int, event: str, **fields: object) -> None:
    def log_exit() -> None:
        _logger.warning(event, extra=fields)
        logging.shutdown()

    # Log in another thread: the interrupted one may hold any lock.
    thread = threading.Thread(target=log_exit, daemon=True)
    with suppress(RuntimeError):
        thread.start()
        thread.join(_LOG_SECONDS)
    os._exit(status)


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
