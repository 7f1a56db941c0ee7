"""The HTTP server below the applications: connections, certificates, and the clock of both."""

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

from app.server.accepting import Acceptor
from app.server.connection import connection_factory
from app.server.connections import TICK_SECONDS, Connections, raise_file_limit
from app.server.stopping import Ending, StoppingServer
from app.server.tls import LOOK_SECONDS, Certificates, certificates
from app.settings.server import ServerSettings

__all__ = ("Transport", "http_server", "open_transport")

_CUT_SECONDS = 4.0
"""Before the drain is over, requests that have not arrived in full are given up: each connection is seen once a second,
and lingers for two behind its refusal."""

_logger = logging.getLogger(__name__)


class Transport(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What connections are made of.

    Attributes:
        connections: the book of those over HTTP.
        certificates: what every port speaks TLS with; None for no TLS.
    """

    connections: Connections
    certificates: Certificates | None

    @property
    def scheme(self) -> str:
        """Of HTTP addresses."""
        return "http" if self.certificates is None else "https"


def open_transport(settings: ServerSettings, metrics: CollectorRegistry) -> Transport:
    """What the settings want; the process may have more files open from then on.

    Raises:
        SettingsError: when certificates cannot be used, or there cannot be as many connections.
    """
    found = certificates(settings)
    if found is not None:
        found.show(metrics)
    return Transport(connections=Connections(settings, metrics, raise_file_limit()), certificates=found)


def http_server(app: ASGIApp, transport: Transport, ending: Ending) -> uvicorn.Server:
    """A server of `app` that is yet to be run over sockets.

    Args:
        app: answers everything.
        transport: what its connections are made of.
        ending: called when the server stops.
    """
    config = uvicorn.Config(
        cast("Any", app),
        http="httptools",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(ending.timeout),
    )
    return _Server(config, ending, transport)


class _Server(StoppingServer):
    """uvicorn's, with connections of its own and a clock for them."""

    def __init__(self, config: uvicorn.Config, ending: Ending, transport: Transport) -> None:
        super().__init__(config, msgspec.structs.replace(ending, end=self._end))
        self._transport = transport
        self._end_others = ending.end
        self._clocks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        connections, found = self._transport.connections, self._transport.certificates
        protocol = connection_factory(
            connections,
            {
                "config": self.config,
                "server_state": self.server_state,
                "app_state": self.lifespan.state,
                "_loop": asyncio.get_running_loop(),
            },
        )
        self._clocks.append(asyncio.create_task(_tick(connections)))
        if found is not None:
            self._clocks.append(asyncio.create_task(_look(found)))
        acceptors = [Acceptor(each, connections, protocol, found) for each in sockets or ()]
        self.servers = cast("list[asyncio.base_events.Server]", acceptors)
        self.started = True

    def _end(self) -> None:
        left = max(0.0, self._ending.timeout - _CUT_SECONDS)
        self._transport.connections.until = asyncio.get_running_loop().time() + left
        self._end_others()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().shutdown(sockets)
        finally:
            for each in self._clocks:
                each.cancel()


async def _tick(connections: Connections) -> None:
    """Let time pass for connections, also while the server waits for the last of them."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        try:
            connections.tick(loop.time())
        except Exception:
            # One connection must not keep the others from being looked at for ever.
            _logger.exception("a connection could not be looked at")


async def _look(certificates: Certificates) -> None:
    """Take renewed certificates. Files may be slow, and are read by another thread."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(certificates.look)
