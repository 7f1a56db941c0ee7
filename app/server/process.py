"""The server process: listener, models, signals, exit."""

import signal
from collections.abc import Callable
from types import FrameType

import uvicorn
from litestar import Litestar

from app.server.grpc import GrpcServer
from app.server.listening import ListenError, listener, shown
from app.server.loading import ModelLoading
from app.settings.server import ServerSettings

__all__ = ("run",)


def run(
    app: Litestar,
    settings: ServerSettings,
    loading: ModelLoading,
    grpc: GrpcServer | None,
    announce: Callable[[str, str | None], None],
) -> bool:
    """Serve until told to stop. SIGTERM and SIGINT let requests in flight finish, within the drain timeout.

    Args:
        app: what to serve.
        settings: where to listen.
        loading: loads the models of `app`.
        grpc: what `app` starts beside itself, if anything.
        announce: told the server's address, and that for gRPC, once there are models behind it.

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
            host = shown(settings.host)
            announce(f"http://{host}:{bound.getsockname()[1]}", f"{host}:{grpc.port}" if grpc else None)
        else:
            server.should_exit = True

    loading.when_finished = loaded
    # uvicorn drains, then sends itself the signal again for whoever handled it before. Nobody did: the drain is all.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignored)
    if grpc is not None:
        grpc.check()
    with listener(settings.host, settings.port) as bound:
        if grpc is not None and grpc.port == bound.getsockname()[1]:
            raise ListenError(f"Cannot listen on port {grpc.port} for both HTTP and gRPC; give --grpc-port another")
        server.run(sockets=[bound])
    if grpc is not None and grpc.failure is not None:
        raise grpc.failure
    return usable


def _ignored(number: int, frame: FrameType | None) -> None:
    del number, frame
