"""Run the server process: listeners, models, signals and exit."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack

import msgspec
from litestar import Litestar
from litestar.types import ASGIApp, Receive, Scope, Send

from app.server.grpc.server import GrpcServer
from app.server.model_loading import ModelLoading
from app.server.transport.acceptor import ListenError, connectable_host, open_listen_socket
from app.server.transport.server import HttpServer, ShutdownHooks, Transport
from app.settings.server import ServerSettings


class SecondaryListener(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An application that listens on a port besides the main one.

    Attributes:
        name: its name in the start message.
        app: the application.
        guarded_app: the application behind the checks of `cross_site`; this one is served.
        port: the port to listen on; 0 for any free one.
    """

    name: str
    app: Litestar
    guarded_app: ASGIApp
    port: int


def route_by_port(main_app: ASGIApp, apps_by_port: Mapping[int, ASGIApp]) -> ASGIApp:
    """Return an application that routes each request by its port: to one of `apps_by_port`, or to `main_app`."""

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        app = main_app
        if scope["type"] == "http" and scope["server"] is not None:
            app = apps_by_port.get(scope["server"][1] or 0, main_app)
        await app(scope, receive, send)

    return route


def run(
    app: ASGIApp,
    settings: ServerSettings,
    loading: ModelLoading,
    grpc: GrpcServer | None,
    secondary_listeners: Sequence[SecondaryListener],
    transport: Transport,
    announce: Callable[[str, Mapping[str, str]], None],
    shutdown_hooks: ShutdownHooks,
    lifespan: AbstractAsyncContextManager[None],
) -> bool:
    """Serve until a stop signal. After SIGTERM or SIGINT, requests in flight may finish within the drain timeout.

    Args:
        app: the application of the main port.
        settings: define the addresses.
        loading: loads the models of `app`.
        grpc: the gRPC server, if there is one; `app` starts it.
        secondary_listeners: applications on ports of their own.
        transport: shared state of connections.
        announce: called with the address of the server and the named addresses of other listeners, once models are
            ready.
        shutdown_hooks: callbacks for the shutdown.
        lifespan: lifespan of `app`.

    Returns:
        Whether any model was loaded. If none is, the server stops and the result is False.

    Raises:
        ListenError: if an address cannot be bound.
    """
    any_loaded = True
    ports: list[int] = []

    def on_models_loaded(any_ready: bool) -> None:
        nonlocal any_loaded
        any_loaded = any_ready
        if not any_ready:
            server.should_exit = True
            return
        host = connectable_host(settings.host)
        address, *urls = (f"{transport.scheme}://{host}:{port}" for port in ports)
        addresses_by_name = {secondary.name: url for secondary, url in zip(secondary_listeners, urls, strict=True)}
        if grpc is not None:
            addresses_by_name = {"gRPC": f"{host}:{grpc.port}", **addresses_by_name}
            if grpc.second_port is not None:
                addresses_by_name["TensorFlow Serving gRPC"] = f"{host}:{grpc.second_port}"
        announce(address, addresses_by_name)

    loading.when_finished = on_models_loaded
    with ExitStack() as stack:
        requested_ports = [settings.port, *(secondary.port for secondary in secondary_listeners)]
        listen_sockets = [stack.enter_context(open_listen_socket(settings.host, port)) for port in requested_ports]
        ports += [listen_socket.getsockname()[1] for listen_socket in listen_sockets]
        if grpc is not None:
            shared_ports = set(ports) & set(grpc.ports)
            if shared_ports:
                port = min(shared_ports)
                raise ListenError(settings.host, port, "HTTP and gRPC need different ports")
            grpc.check_addresses()
        apps = {port: secondary.guarded_app for port, secondary in zip(ports[1:], secondary_listeners, strict=True)}
        server = HttpServer(route_by_port(app, apps), transport, shutdown_hooks, lifespan)
        try:
            server.run(listen_sockets)
        except Exception:
            # The lifespan of the application wraps its errors.
            if grpc is not None and grpc.failure is not None:
                raise grpc.failure from None
            raise
    return any_loaded
