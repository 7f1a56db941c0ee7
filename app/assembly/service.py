"""Build the service: engine, observers, protocols and application."""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from grpc.aio import ServerInterceptor
from litestar import Litestar
from prometheus_client import CollectorRegistry, ProcessCollector

from app.assembly.inferences import served_inferences
from app.assembly.models import load
from app.assembly.recording import open_recorder
from app.engine.admission import Bounds
from app.engine.engine import Engine
from app.engine.events import InferenceObserver, OutputAnnotator
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.observers.findings import FindingMetrics
from app.observers.lost_processes import LostProcesses
from app.observers.metrics import Metrics
from app.observers.request_log import RequestLog
from app.observers.state import StateMetrics
from app.protocols import GRPC_PROTOCOLS, protocols_beside
from app.protocols.protocol import HttpListener
from app.protocols.tensorflow_serving.routes import TensorFlowServing
from app.server.access.access import open_access
from app.server.access.calls import CallAccess
from app.server.access.exposure import cors_origins
from app.server.access.http import HttpAccess
from app.server.asgi import create_app, create_listener_app
from app.server.cross_site import allowed_hosts, without_cross_site
from app.server.errors import refusal_bodies
from app.server.grpc import GrpcServer
from app.server.grpc_load_shedding import CallShedder
from app.server.load_shedding import LoadShedder, inference_routes
from app.server.loading import ModelLoading
from app.server.loopback import names_loopback
from app.server.page.page import Page
from app.server.page.reach import Reach
from app.server.polling import polling
from app.server.ports import Beside
from app.server.query_pool import QueryPool
from app.server.stopping import Ending
from app.server.transport import Transport, open_transport
from app.server.tuning import releasing_memory
from app.settings.extras import missing_extra
from app.settings.model import ModelSource
from app.settings.server import ServerSettings, SettingsError
from tasks.exchange.limits import Limits

if TYPE_CHECKING:
    from app.assembly.drift import Drift
    from app.drift.history import History
    from app.observers.tracing import Tracing
    from app.recording.recorder import Recorder

__all__ = ("Service",)

_LAST_REPORT_SECONDS = 0.5
"""Seconds for workers that the drain cut off to finish and report to observers."""

_MIN_CLOSE_SECONDS = 1.0


class Service:
    """The parts of a server, built from its settings. Models are loaded when the application starts.

    Args:
        settings: of the server.
        discover: returns the models to serve; called again for every reload.

    Raises:
        ModelError: when there are no models, or two models have the same name.
        SettingsError: when a setting needs a missing package, or the recording store cannot be used.
    """

    def __init__(self, settings: ServerSettings, discover: Callable[[], Sequence[ModelSource]]) -> None:
        metrics = CollectorRegistry()
        self.transport = open_transport(settings, metrics)
        who = open_access(settings, metrics)
        access, origins = HttpAccess(who), cors_origins(settings)
        self._poll_seconds = settings.repository_poll_seconds
        self._drain_delay, self._drain_timeout = settings.drain_delay, settings.drain_timeout
        self._drain_deadline: float | None = None
        # Copy the limits by name, so that a new limit needs no change here.
        named = {name: getattr(settings, name) for name in Limits.__struct_fields__ if hasattr(settings, name)}
        limits = Limits(**named)
        self.registry = Registry(discover())
        observers: list[InferenceObserver] = [
            RequestLog(),
            Metrics(metrics, self.registry.knows),
            FindingMetrics(metrics, lambda model: _labels(self.registry, model)),
        ]
        additions: list[OutputAnnotator] = []
        self._closing = ExitStack()
        if settings.otlp_endpoint is not None:
            tracing = _tracing(settings.otlp_endpoint)
            self._closing.callback(tracing.close)
            observers.append(tracing)
        drift = _drift(settings, self.registry, metrics)
        if drift is not None:
            self._closing.callback(drift.close)
            observers.append(drift.watch)
            additions.extend(drift.additions)
        self.recorder = open_recorder(settings, metrics)
        if self.recorder is not None:
            self._closing.callback(self._close_recorder, self.recorder)
        loading = partial(load, lost=LostProcesses(metrics).lost)
        repository = Repository(self.registry, discover, loading)
        self.engine = Engine(
            repository,
            observers,
            limits,
            settings.worker_count,
            Bounds(
                max_waiting=settings.max_waiting,
                max_waiting_each=settings.max_waiting_each,
                max_queue_seconds=settings.max_queue_seconds,
                request_timeout=settings.request_timeout,
                max_each_client=settings.max_each_client,
            ),
            explain_workers=settings.explain_workers,
            additions=additions,
            keeper=self.recorder,
        )
        inferences = served_inferences(settings, QueryPool(lambda: self.engine.is_in_use, metrics))
        self._closing.callback(inferences.close)
        StateMetrics(self.engine, metrics)
        ProcessCollector(registry=metrics)
        self.loading = ModelLoading(self.registry, loading)
        protocols = protocols_beside(settings.chariot_protocol)
        interceptors: list[ServerInterceptor] = [CallShedder(self.engine, GRPC_PROTOCOLS)]
        if who is not None:
            interceptors.append(CallAccess(who, GRPC_PROTOCOLS))
        self.grpc = _grpc_server(self.engine, settings, self.transport, interceptors) if settings.grpc else None
        listeners = _listeners(settings)
        secured = who is not None
        self._shedder = self.transport.connections.shedder = LoadShedder(
            [*inference_routes(self.engine, protocols, secured=secured), *inferences.shed_routes],
            {listener.title: inference_routes(self.engine, [listener], secured=secured) for listener in listeners},
        )
        max_bytes = settings.max_request_bytes
        guard = partial(without_cross_site, hosts=allowed_hosts(settings), origins=origins)
        self.beside: list[Beside] = []
        for listener, port in listeners.items():
            app = create_listener_app(self.engine, listener, max_bytes, access)
            # These listeners change no state, so pages of any origin may send requests to them.
            guarded = guard(app, any_origin=True, refusal=refusal_bodies([listener], self.engine))
            self.beside.append(Beside(name=listener.title, app=app, guarded=guarded, port=port))
        history = drift.watch.history if drift is not None else None
        self._page = _page(self.engine, settings, self.grpc, self.beside, inferences.offered, history, access)
        self.app = create_app(
            self.engine,
            protocols,
            metrics,
            max_bytes,
            self._lifespan,
            list(listeners),
            self._page,
            inferences,
            access,
            origins,
        )
        self.guarded = guard(self.app, refusal=refusal_bodies(protocols, self.engine))

    @property
    def ending(self) -> Ending:
        """Return the hooks that run when the server stops."""
        return Ending(retire=self.engine.retire, end=self._end, delay=self._drain_delay, timeout=self._drain_timeout)

    def _end(self) -> None:
        """End streams, pages and gRPC, which would outlast the drain."""
        self._drain_deadline = time.monotonic() + self._drain_timeout
        self.engine.hurry()
        self._page.stop()
        if self.grpc is not None:
            self.grpc.begin_to_stop()

    def _close_recorder(self, recorder: "Recorder") -> None:
        # Use the time left of the shared drain timeout, but at least enough to write pending recordings.
        left = self._drain_timeout if self._drain_deadline is None else self._drain_deadline - time.monotonic()
        recorder.close(max(_MIN_CLOSE_SECONDS, left))

    def announced(self, others: Mapping[str, str]) -> None:
        """Set the ports of the secondary listeners, by listener name."""
        for listener in self.beside:
            port = int(others[listener.name].rpartition(":")[2])
            self._page.reach.tensorflow_serving_port = port
            self._shedder.name_port(port, listener.name)

    @asynccontextmanager
    async def _lifespan(self, _: Litestar) -> AsyncGenerator[None]:
        if self.grpc is not None:
            await self.grpc.start()
        self.loading.start()
        try:
            async with polling(self.engine.repository, self._poll_seconds), releasing_memory(lambda: self.engine.busy):
                yield
        finally:
            if self.grpc is not None:
                await self.grpc.stop()
            await self.loading.stop()
            self.engine.close()
            await self.engine.ended(_LAST_REPORT_SECONDS)
            self._closing.close()


def _grpc_server(
    engine: Engine,
    settings: ServerSettings,
    transport: Transport,
    interceptors: Sequence[ServerInterceptor],
) -> GrpcServer:
    return GrpcServer(
        engine,
        GRPC_PROTOCOLS,
        host=settings.host,
        port=settings.grpc_port,
        max_request_bytes=settings.max_request_bytes,
        drain_timeout=settings.drain_timeout,
        interceptors=interceptors,
        transport=settings,
        certificates=transport.certificates,
    )


def _page(
    engine: Engine,
    settings: ServerSettings,
    grpc: GrpcServer | None,
    beside: Sequence[Beside],
    recorded: bool,
    drift: "History | None",
    access: HttpAccess,
) -> Page:
    """Build the whole page on a loopback address, or if enabled; otherwise only its GRPS part."""
    served = beside[0] if beside else None
    reach = Reach(grpc, served and served.app, served.port if served else 0)
    local = names_loopback(settings.host)
    return Page(
        engine,
        # On other addresses, a client that is not a browser can forge any Host and Origin header.
        admin=False if settings.page_admin is None and not local else settings.page_admin,
        reach=reach,
        chariot_protocol=settings.chariot_protocol,
        whole=local if settings.page is None else settings.page,
        recorded=recorded,
        drift=drift,
        access=access,
    )


def _listeners(settings: ServerSettings) -> Mapping[HttpListener, int]:
    """Return the enabled protocols with their own port, and their ports."""
    if not settings.tensorflow_serving:
        return {}
    listener = TensorFlowServing(cors=settings.tensorflow_serving_cors, loading_status=settings.loading_status)
    return {listener: settings.tensorflow_serving_port}


def _drift(settings: ServerSettings, registry: Registry, metrics: CollectorRegistry) -> "Drift | None":
    if not settings.drift:
        for name, given in (("similarity", settings.drift_similarity), ("webhook", settings.drift_webhook)):
            if given:
                raise SettingsError(f"--drift-{name} needs --drift")
        return None
    from app.assembly.drift import Drift

    return Drift(
        settings,
        lambda: [registration.source for registration in registry.registrations if registration.wanted],
        metrics,
    )


def _labels(registry: Registry, model: str) -> Collection[str]:
    """Return the labels that any loaded version of a model declares."""
    loaded = [registration.servable for registration in registry.versions(model)]
    return {label for servable in loaded if servable is not None for label in servable.description.labels}


def _tracing(endpoint: str) -> "Tracing":
    try:
        from app.observers.tracing import Tracing, otlp_exporter
    except ImportError as error:
        raise SettingsError(missing_extra("--otlp-endpoint", "otel", error)) from None
    return Tracing(otlp_exporter(endpoint))
