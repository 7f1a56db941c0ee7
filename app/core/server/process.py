"""Run the server process: listeners, the loading of models, signals and exit."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial

from app.core.engine.models.registry import ModelState, Registration, Registry, version_sort_key
from app.core.engine.models.repository import Repository, warn_of_hidden_name
from app.core.engine.models.servable import Servable
from app.core.engine.scheduling.thread_pool import run_in_daemon_thread
from app.core.server.grpc.server import GrpcServer
from app.core.server.http.transport import Transport
from app.core.server.listen import ListenError, connectable_host, open_listen_socket
from app.core.server.process_setup import freeze_garbage, repeating
from app.core.server.serving import HttpServer, Listener, ShutdownHooks
from app.core.settings.model import ModelSource

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
        names = dict.fromkeys(source.name for source in sources)
        for name in names:
            warn_of_hidden_name(name)
        await asyncio.gather(
            *(self._load_versions([source for source in sources if source.name == name]) for name in names)
        )
        freeze_garbage()
        self.when_finished(any(registration.servable is not None for registration in self._registry.registrations))

    async def _load_versions(self, sources: Sequence[ModelSource]) -> None:
        """Load all versions of a model, and say which one answers if the latest fails."""
        loads = (run_in_daemon_thread(partial(self._load_one, source)) for source in sources)
        registrations = await asyncio.gather(*loads)
        latest = max(registrations, key=lambda registration: version_sort_key(registration.source.version))
        if note := self._registry.fallback_note(latest):
            fields = {"model": latest.source.name, "version": latest.source.version}
            _logger.warning("model falls back to an earlier version", extra={**fields, "reason": latest.detail + note})

    def _load_one(self, source: ModelSource) -> Registration:
        registration = self._registry.load(source, self._load)
        fields = {"model": source.name, "version": source.version}
        if registration.servable is not None:
            _logger.info("model ready", extra=fields)
        else:
            _logger.error("model failed to load", extra={**fields, "reason": registration.detail})
        return registration


@asynccontextmanager
async def polling(repository: Repository, seconds: float | None) -> AsyncGenerator[None]:
    """While entered, reload the changes of the model repository every `seconds`; never if None."""
    if seconds is None:
        yield
        return
    await repository.refresh()
    async with repeating(repository.refresh, seconds, "model repository scan failed"):
        yield


def run(
    listeners: Sequence[Listener],
    host: str,
    loading: ModelLoading,
    grpc: GrpcServer | None,
    transport: Transport,
    announce: Callable[[str, Mapping[str, str]], None],
    shutdown_hooks: ShutdownHooks,
    lifespan: AbstractAsyncContextManager[None],
) -> bool:
    """Serve until a stop signal. After SIGTERM or SIGINT, requests in flight may finish within the drain timeout.

    The lifespan of the application starts the gRPC server. Once models are ready, `announce` gets the address of the
    first listener and the named addresses of the others. Raise ListenError if an address cannot be bound.

    Returns:
        Whether any model was loaded. If none is, the server stops and the result is False.
    """
    any_loaded = True

    def on_models_loaded(any_ready: bool) -> None:
        nonlocal any_loaded
        any_loaded = any_ready
        if not any_ready:
            server.should_exit = True
            return
        address = f"{transport.scheme}://{connectable_host(host)}"
        addresses_by_name = {listener.name: f"{address}:{listener.port}" for listener in listeners[1:]}
        if grpc is not None:
            addresses_by_name = {"gRPC": f"{connectable_host(host)}:{grpc.port}", **addresses_by_name}
            for name, port in grpc.more_ports.items():
                addresses_by_name[name] = f"{connectable_host(host)}:{port}"
        announce(f"{address}:{listeners[0].port}", addresses_by_name)

    loading.when_finished = on_models_loaded
    with ExitStack() as stack:
        listen_sockets = [stack.enter_context(open_listen_socket(host, listener.port)) for listener in listeners]
        for listener, listen_socket in zip(listeners, listen_sockets, strict=True):
            listener.port = listen_socket.getsockname()[1]
        if grpc is not None:
            shared_ports = {listener.port for listener in listeners}.intersection(grpc.ports)
            if shared_ports:
                raise ListenError(host, min(shared_ports), "HTTP and gRPC need different ports")
            grpc.check_addresses()
        server = HttpServer(listeners, transport, shutdown_hooks, lifespan)
        server.run_on(listen_sockets)
    return any_loaded
