"""The server process: listener, models, signals, exit."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from litestar import Litestar

from app.server.access.exposure import cors_origins
from app.server.cross_site import only_for_this_machine, without_cross_site
from app.server.grpc import GrpcServer
from app.server.listening import ListenError, listener, shown
from app.server.loading import ModelLoading
from app.server.ports import Beside, by_port
from app.server.stopping import Ending
from app.server.transport import Transport, http_server
from app.settings.server import ServerSettings

__all__ = ("run",)


def run(
    app: Litestar,
    settings: ServerSettings,
    loading: ModelLoading,
    grpc: GrpcServer | None,
    beside: Sequence[Beside],
    transport: Transport,
    announce: Callable[[str, Mapping[str, str]], None],
    ending: Ending,
) -> bool:
    """Serve until told to stop. SIGTERM and SIGINT let requests in flight finish, within the drain timeout.

    Args:
        app: what to serve.
        settings: where to listen.
        loading: loads the models of `app`.
        grpc: what `app` starts beside itself, if anything.
        beside: what listens on ports of its own.
        transport: what connections are made of.
        announce: told the server's address, and those of whatever else listens by their names, once there are models
            behind them.
        ending: called when the server stops.

    Returns:
        Whether there was anything to serve: False when not one model could be loaded, which ends the server.

    Raises:
        ListenError: when the address cannot be listened on.
    """
    usable = True
    ports: list[int] = []

    def loaded(any_ready: bool) -> None:
        nonlocal usable
        usable = any_ready
        if not any_ready:
            server.should_exit = True
            return
        host = shown(settings.host)
        address, *others = (f"{transport.scheme}://{host}:{port}" for port in ports)
        named = {each.name: other for each, other in zip(beside, others, strict=True)}
        announce(address, named if grpc is None else {"gRPC": f"{host}:{grpc.port}", **named})

    loading.when_finished = loaded
    with ExitStack() as stack:
        wanted = [settings.port, *(each.port for each in beside)]
        bound = [stack.enter_context(listener(settings.host, port)) for port in wanted]
        ports += [each.getsockname()[1] for each in bound]
        if grpc is not None:
            if grpc.port in ports:
                raise ListenError(f"Cannot listen on port {grpc.port} for both HTTP and gRPC; give --grpc-port another")
            grpc.check()
        others = {port: each.app for port, each in zip(ports[1:], beside, strict=True)}
        guarded = without_cross_site(app, local=only_for_this_machine(settings), origins=cors_origins(settings))
        server = http_server(by_port(guarded, others), transport, ending)
        server.run(sockets=bound)
    if grpc is not None and grpc.failure is not None:
        raise grpc.failure
    return usable
