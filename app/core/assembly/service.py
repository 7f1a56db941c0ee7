"""Build the service: engine, observers, protocols and application."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

import msgspec
from grpc.aio import ServerInterceptor
from litestar import Litestar
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from app.core.assembly.models import load
from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.engine.scheduling.admission import QueueLimits
from app.core.hooks import Protocols
from app.core.observers.metrics import Metrics, StateMetrics
from app.core.observers.request_log import RequestLog
from app.core.plugins import registry
from app.core.server.auth.access_control import AccessControl, open_access_control
from app.core.server.auth.grpc_access import GrpcAccess
from app.core.server.auth.http_access import HttpAccess
from app.core.server.grpc.interceptors import CallShedder
from app.core.server.grpc.server import GrpcServer
from app.core.server.http.asgi import Entry, create_app, create_listener_app
from app.core.server.http.request_rules import allowed_hosts, parse_origins
from app.core.server.http.transport import open_transport
from app.core.server.process import ModelLoading, polling
from app.core.server.process_setup import releasing_memory
from app.core.server.serving import Listener, ShutdownHooks
from app.core.settings.model import ModelSource
from app.core.settings.server import ServerSettings
from tasks.inference.limits import Limits

T = TypeVar("T")

_FINAL_REPORT_SECONDS = 0.5
"""Seconds for workers that the drain cut off to finish and report to observers."""

_MIN_CLOSE_SECONDS = 1.0


class Service:
    """The parts of a server, built from its settings. Models are loaded when the application starts.

    Every reload calls `discover` again, which returns the models to serve; `found` is what it has returned already.
    Raise ModelError when there are no models, or two models have the same name. Raise SettingsError when a setting
    needs a missing package, or the recording store cannot be used.

    Attributes:
        authenticates: whether clients need a credential.
        home: returns the response to ``/`` for browsers; None without a page.
    """

    def __init__(
        self, settings: ServerSettings, discover: Callable[[], Sequence[ModelSource]], found: Sequence[ModelSource] = ()
    ) -> None:
        self.settings = settings
        # The times of creation would be a second series for each counter and histogram.
        disable_created_metrics()
        self.metrics = metrics = CollectorRegistry()
        self.transport = open_transport(settings, metrics)
        self._drain_deadline: float | None = None
        self.registry = Registry(found or discover())
        self._exit_stack = ExitStack()
        repository = Repository(self.registry, discover, load)
        self.engine = Engine(
            repository,
            msgspec.convert(settings, Limits, from_attributes=True),
            settings.worker_count,
            msgspec.convert(settings, QueueLimits, from_attributes=True),
        )
        self.engine.batched_observers.attach(observers=[RequestLog(), Metrics(metrics, self.registry.owner)])
        enabled = registry().protocols(settings)
        self.grpc: GrpcServer | None = None
        self.access = access = HttpAccess()
        self.port_names = [port.protocol.name for port in enabled.ports]
        self._ports: dict[str, Listener] = {}
        self.views: dict[str, Callable[[], object] | None] = {}
        self._parts = registry().start(self)
        for parts in self._parts:
            self.engine.attach(parts)
            self.views |= parts.views
            if parts.close is not None:
                self._exit_stack.callback(self._close, parts.close)
        identities = [parts.identities for parts in self._parts if parts.identities is not None]
        if len(identities) > 1:
            raise ValueError("Only one plugin can identify clients")
        access_control = open_access_control(settings, metrics, next(iter(identities), None))
        self.authenticates = access_control is not None
        access.secure(access_control)
        StateMetrics(self.engine, metrics)
        ProcessCollector(registry=metrics)
        self.loading = ModelLoading(self.registry, load)
        if settings.grpc is not False:
            self.grpc = self._create_grpc(enabled, access_control)
        max_bytes = settings.max_request_bytes
        entry = partial(
            Entry, hosts=allowed_hosts(settings), bodies=self.transport.bodies, write_timeout=settings.write_timeout
        )
        for port in enabled.ports:
            listener = port.protocol
            app = create_listener_app(self.engine, listener, max_bytes, access, entry(origins=port.origins))
            self._ports[listener.name] = Listener(app=app, name=listener.title, port=port.port)
        self.home = next((parts.home for parts in reversed(self._parts) if parts.home is not None), None)
        self.app = create_app(
            self.engine,
            enabled.http,
            metrics,
            max_bytes,
            self._lifespan,
            self.home,
            access,
            # Not ``*``: with it, pages of any site could unload models.
            entry(origins=parse_origins("--cors-origins", settings.cors_origins)),
            [handler for parts in self._parts for handler in parts.handlers],
            [operation for parts in self._parts for operation in parts.operations],
            [prefix for parts in self._parts for prefix in parts.costly_prefixes],
        )
        self.listeners = [Listener(app=self.app, port=settings.port), *self._ports.values()]

    def provide(self, kind: type[T], value: T) -> None:
        """Give a value to the plugins of this server."""
        self.engine.provided.provide(kind, value)

    def find(self, kind: type[T]) -> Sequence[T]:
        """Return what plugins of this server provide."""
        return self.engine.provided.find(kind)

    def port(self, name: str) -> Listener:
        """Return the port of a protocol."""
        return self._ports[name]

    def _create_grpc(self, protocols: Protocols, access_control: AccessControl | None) -> GrpcServer:
        services = protocols.grpc
        interceptors: list[ServerInterceptor] = [CallShedder(self.engine, services)]
        if access_control is not None:
            interceptors.append(GrpcAccess(access_control, services))
        return GrpcServer(
            self.engine,
            services,
            self.settings,
            more_ports=protocols.grpc_ports,
            interceptors=interceptors,
            certificates=self.transport.certificates,
        )

    @property
    def shutdown_hooks(self) -> ShutdownHooks:
        """Return the hooks that run when the server stops."""
        return ShutdownHooks(
            mark_not_ready=self.engine.mark_not_ready,
            start_drain=self._start_drain,
            drain_delay=self.settings.drain_delay,
            drain_timeout=self.settings.drain_timeout,
        )

    def _start_drain(self) -> None:
        """End streams and gRPC, which would outlast the drain."""
        self._drain_deadline = time.monotonic() + self.settings.drain_timeout
        self.engine.start_drain()
        if self.grpc is not None:
            self.grpc.start_shutdown()

    def _close(self, close: Callable[[float], None]) -> None:
        # Use the time left of the shared drain timeout, but at least enough to write pending recordings.
        remaining = (
            self.settings.drain_timeout if self._drain_deadline is None else self._drain_deadline - time.monotonic()
        )
        close(max(_MIN_CLOSE_SECONDS, remaining))

    @asynccontextmanager
    async def _lifespan(self, _: Litestar) -> AsyncGenerator[None]:
        if self.grpc is not None:
            await self.grpc.start()
        self.loading.start()
        try:
            async with (
                AsyncExitStack() as stack,
                polling(self.engine.repository, self.settings.repository_poll_seconds),
                releasing_memory(lambda: self.engine.busy),
                self.engine.batched_observers.flushing(),
            ):
                for parts in self._parts:
                    if parts.lifespan is not None:
                        await stack.enter_async_context(parts.lifespan())
                yield
        finally:
            if self.grpc is not None:
                await self.grpc.stop()
            await self.loading.stop()
            self.engine.close()
            await self.engine.wait_drained(_FINAL_REPORT_SECONDS)
            self._exit_stack.close()
