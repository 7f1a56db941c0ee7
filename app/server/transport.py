"""The HTTP server below the applications: connections, and how they end."""

import socket
from collections.abc import Callable
from typing import Any, cast

import uvicorn
from litestar.types import ASGIApp

from app.settings.server import ServerSettings

__all__ = ("http_server",)


def http_server(app: ASGIApp, settings: ServerSettings, ending: Callable[[], None]) -> uvicorn.Server:
    """A server of `app` that is yet to be run over sockets.

    Args:
        app: answers everything.
        settings: how long requests in flight are waited for at the end.
        ending: called in the event loop when the server begins to stop, before it waits for requests in flight.
    """
    config = uvicorn.Config(
        cast("Any", app),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.drain_timeout,
    )
    return _Server(config, ending)


class _Server(uvicorn.Server):
    """uvicorn's, which tells when it begins to stop."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)
