"""Run the server process: listeners, the loading of models, signals and exit."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial

import msgspec
from litestar import Litestar
from litestar.types import ASGIApp, Receive, Scope, Send

from app.engine.models.registry import ModelState, Registry, chariot_name_warning
from app.engine.models.repository import Repository
from app.engine.models.servable import Servable
from app.engine.scheduling.daemon_thread import run_in_daemon_thread
from app.server.grpc.server import GrpcServer
from app.server.process_setup import freeze_garbage
from app.server.transport.acceptor import ListenError, connectable_host, open_listen_socket
from app.server.transport.connection_table import ConnectionTable
from app.server.transport.server import HttpServer, ShutdownHooks
from app.settings.model import ModelSource
from app.settings.server import ServerSettings

_logger = logging.getLogger(__name__)


class ModelLoading:
    """Load every model of a registry once, in threads, so that health checks are answered meanwhile.

    Attributes:
        when_finished: called once in the event loop, with whether any model is ready.
    """

    def __init__(self, registry: Registry, load: Callable[[ModelSource], Servable]) -> None:
        self.when_finished: Callable[[bool], None] = lambda _: None
        self._registry = registry
        self._load = load
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Return whether a model is loading, which can outlast the shutdown."""
        return any(registration.state is ModelState.LOADING for registration in self._registry.registrations)

    def start(self) -> None:
        """Start to load, in the running event loop."""
        self._task = asyncio.create_task(self._load_all())

    async def stop(self) -> None:
        """Start no further loads; loads in progress continue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _load_all(self) -> None:
        sources = [registration.source for registration in self._registry.registrations]
        for name in dict.fromkeys(source.name for source in sources):
            if reason := chariot_name_warning(name):
                _logger.warning("model name hidden", extra={"model": name, "reason": reason})
        await asyncio.gather(*(run_in_daemon_thread(partial(self._load_one, source)) for source in sources))
        freeze_garbage()
        self.when_finished(any(registration.servable is not None for registration in self._registry.registrations))

    def _load_one(self, source: ModelSource) -> None:
        registration = self._registry.load(source, self._load)
        fields = {"model": source.name, "version": source.version}
        if registration.servable is not None:
            _logger.info("model ready", extra=fields)
        else:
            _logger.error("model failed to load", extra={**fields, "reason": registration.detail})


@asynccontextmanager
async def polling(repository: Repository, seconds: float | None) -> AsyncGenerator[None]:
    """While entered, reload the changes of the model repository every `seconds`; never if None."""
    if seconds is None:
        yield
        return
    await repository.refresh()
    task = asyncio.create_task(_poll(repository, seconds))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _poll(repository: Repository, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await repository.refresh()
        except Exception:
            _logger.exception("model repository scan failed")


class SecondaryListener(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An application that listens on a port besides the main one.

    Attributes:
        name: its name in the start message.
        guarded_app: the application behind the checks of `cross_site`; this one is served.
        port: the port to listen on; 0 for any free one.
        on_bound: called with the bound port, before the first connection.
    """

    name: str
    app: Litestar
    guarded_app: ASGIApp
    port: int
    on_bound: Callable[[int], None]


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
    connections: ConnectionTable,
    announce: Callable[[str, Mapping[str, str]], None],
    shutdown_hooks: ShutdownHooks,
    lifespan: AbstractAsyncContextManager[None],
) -> bool:
    """Serve until a stop signal. After SIGTERM or SIGINT, requests in flight may finish within the drain timeout.

    The lifespan of `app` starts the gRPC server. Once models are ready, `announce` gets the address of the server and
    the named addresses of other listeners.

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
        address, *urls = (f"{connections.scheme}://{host}:{port}" for port in ports)
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
        apps: dict[int, ASGIApp] = {}
        for port, secondary in zip(ports[1:], secondary_listeners, strict=True):
            apps[port] = secondary.guarded_app
            secondary.on_bound(port)
        server = HttpServer(route_by_port(app, apps), connections, shutdown_hooks, lifespan)
        try:
            server.run(listen_sockets)
        except Exception:
            # The lifespan of the application wraps its errors.
            if grpc is not None and grpc.failure is not None:
                raise grpc.failure from None
            raise
    return any_loaded
