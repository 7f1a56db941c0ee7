"""Run the server process: listeners, models, signals and exit."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from litestar.types import ASGIApp

from app.server.grpc import GrpcServer
from app.server.listening import ListenError, listener, shown
from app.server.loading import ModelLoading
from app.server.ports import Beside, by_port
from app.server.stopping import Ending
from app.server.transport import Transport, http_server
from app.settings.server import ServerSettings

__all__ = ("run",)


def run(
    app: ASGIApp,
    settings: ServerSettings,
    loading: ModelLoading,
    grpc: GrpcServer | None,
    beside: Sequence[Beside],
    transport: Transport,
    announce: Callable[[str, Mapping[str, str]], None],
    ending: Ending,
) -> bool:
    """Serve until a stop signal. After SIGTERM or SIGINT, requests in flight may finish within the drain timeout.

    Args:
        app: the application of the main port.
        settings: define the addresses.
        loading: loads the models of `app`.
        grpc: the gRPC server, if there is one; `app` starts it.
        beside: applications on ports of their own.
        transport: shared state of connections.
        announce: called with the address of the server and the named addresses of other listeners, once models are
            ready.
        ending: callbacks for the shutdown.

    Returns:
        Whether any model was loaded. If not one loads, the server stops and the result is False.

    Raises:
        ListenError: if an address cannot be bound.
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
        named = {secondary.name: url for secondary, url in zip(beside, others, strict=True)}
        announce(address, named if grpc is None else {"gRPC": f"{host}:{grpc.port}", **named})

    loading.when_finished = loaded
    with ExitStack() as stack:
        wanted = [settings.port, *(secondary.port for secondary in beside)]
        bound = [stack.enter_context(listener(settings.host, port)) for port in wanted]
        ports += [listening.getsockname()[1] for listening in bound]
        if grpc is not None:
            if grpc.port in ports:
                raise ListenError(f"Cannot listen on port {grpc.port} for both HTTP and gRPC; give --grpc-port another")
            grpc.check()
        others = {port: secondary.guarded for port, secondary in zip(ports[1:], beside, strict=True)}
        server = http_server(by_port(app, others), transport, ending)
        server.run(sockets=bound)
    if grpc is not None and grpc.failure is not None:
        raise grpc.failure
    return usable
