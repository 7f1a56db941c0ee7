"""The server process: listener, models, signals, exit."""

import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from litestar import Litestar

from app.server.loading import ModelLoading
from app.settings.server import ServerSettings

__all__ = ("ListenError", "run")


class ListenError(Exception):
    """An address that the server was told to listen on, and cannot."""


def run(app: Litestar, settings: ServerSettings, loading: ModelLoading, announce: Callable[[str], None]) -> bool:
    """Serve until told to stop. SIGTERM and SIGINT let requests in flight finish, within the drain timeout.

    Args:
        app: what to serve.
        settings: where to listen.
        loading: loads the models of `app`.
        announce: told the server's address once there are models behind it.

    Returns:
        Whether there was anything to serve: False when not one model could be loaded, which ends the server.

    Raises:
        ListenError: when the address cannot be listened on.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.drain_timeout,
    )
    server = uvicorn.Server(config)
    usable = True

    def loaded(any_ready: bool) -> None:
        nonlocal usable
        usable = any_ready
        if any_ready:
            announce(f"http://{_shown(settings.host)}:{listener.getsockname()[1]}")
        else:
            server.should_exit = True

    loading.when_finished = loaded
    # uvicorn drains, then sends itself the signal again for whoever handled it before. Nobody did: the drain is all.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignored)
    with _listener(settings.host, settings.port) as listener:
        server.run(sockets=[listener])
    return usable


def _ignored(number: int, frame: FrameType | None) -> None:
    del number, frame


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ListenError(f"Cannot listen on {host}:{port}: {error.strerror}") from None
    return listener


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104  compared with, not bound to
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
