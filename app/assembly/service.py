"""The service: engine, observers, protocols and application, wired."""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from litestar import Litestar
from prometheus_client import CollectorRegistry, ProcessCollector

from app.assembly.inferences import served_inferences
from app.assembly.models import load
from app.assembly.recording import open_recorder
from app.engine.admission import Bounds
from app.engine.engine import Engine
from app.engine.events import Addition, InferenceObserver
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.observers.findings import FindingMetrics
from app.observers.lost_processes import LostProcesses
from app.observers.metrics import Metrics
from app.observers.request_log import RequestLog
from app.observers.state import StateMetrics
from app.protocols import GRPC_PROTOCOLS, LISTENERS, protocols_beside
from app.protocols.protocol import HttpListener
from app.protocols.tensorflow_serving.routes import TensorFlowServing
from app.server.access.access import open_access
from app.server.access.calls import CallAccess
from app.server.access.exposure import cors_origins
from app.server.access.http import HttpAccess
from app.server.asgi import create_app, create_listener_app
from app.server.grpc import GrpcServer
from app.server.loading import ModelLoading
from app.server.loopback import names_loopback
from app.server.page.page import Page
from app.server.page.reach import Reach
from app.server.polling import polling
from app.server.ports import Beside
from app.server.stopping import Ending
from app.server.transport import Transport, open_transport
from app.settings.model import ModelSource
from app.settings.server import ServerSettings, SettingsError
from tasks.exchange.limits import Limits

if TYPE_CHECKING:
    from app.assembly.drift import Drift
    from app.drift.history import History
    from app.observers.tracing import Tracing
    from app.recording.recorder import Recorder

__all__ = ("Service",)

_TELLING = 0.5
"""Seconds in which workers that the drain cut off may still come to their end and tell of it."""

_LEAST = 1.0


class Service:
    """A server's parts, built from its settings; models are loaded when the application starts.

    Args:
        settings: of the server.
        discover: finds the models it serves, now and whenever one is to be loaded anew.

    Raises:
        ModelError: when there are no models, or two of them want the same name.
        SettingsError: when a setting needs what is not installed, or the store of recordings cannot be used.
    """

    def __init__(self, settings: ServerSettings, discover: Callable[[], Sequence[ModelSource]]) -> None:
        metrics = CollectorRegistry()
        self.transport = open_transport(settings, metrics)
        who = open_access(settings, metrics)
        access, origins = HttpAccess(who), cors_origins(settings)
        self._poll_seconds = settings.repository_poll_seconds
        self._drain_delay, self._drain_timeout = settings.drain_delay, settings.drain_timeout
        self._last_moment: float | None = None
        # By name, so that a limit is added to the two and nowhere else.
        named = {each: getattr(settings, each) for each in Limits.__struct_fields__ if hasattr(settings, each)}
        limits = Limits(**named)
        self.registry = Registry(discover())
        observers: list[InferenceObserver] = [
            RequestLog(),
            Metrics(metrics, self.registry.knows),
            FindingMetrics(metrics, lambda model: _labels(self.registry, model)),
        ]
        additions: list[Addition] = []
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
        inferences = served_inferences(settings)
        self._closing.callback(inferences.close)
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
        StateMetrics(self.engine, metrics)
        ProcessCollector(registry=metrics)
        self.loading = ModelLoading(self.registry, loading)
        protocols = protocols_beside(settings.chariot_protocol)
        interceptors = [] if who is None else [CallAccess(who, GRPC_PROTOCOLS)]
        self.grpc = _grpc_server(self.engine, settings, self.transport, interceptors) if settings.grpc else None
        listeners = _listeners(settings)
        most = settings.max_request_bytes
        self.beside = [
            Beside(name=each.title, app=create_listener_app(self.engine, each, most, access), port=port)
            for each, port in listeners.items()
        ]
        history = drift.watch.history if drift is not None else None
        self._page = _page(self.engine, settings, self.grpc, self.beside, inferences.offered, history, access)
        self.app = create_app(
            self.engine,
            protocols,
            metrics,
            most,
            self._lifespan,
            list(listeners),
            self._page,
            inferences,
            access,
            origins,
        )

    @property
    def ending(self) -> Ending:
        """What is to be done when the server stops."""
        return Ending(retire=self.engine.retire, end=self._end, delay=self._drain_delay, timeout=self._drain_timeout)

    def _end(self) -> None:
        """End what would never end by itself, or take long."""
        self._last_moment = time.monotonic() + self._drain_timeout
        self.engine.hurry()
        self._page.stop()
        if self.grpc is not None:
            self.grpc.begin_to_stop()

    def _close_recorder(self, recorder: "Recorder") -> None:
        # What is left of the time that all requests share, but not too little to write what waits.
        left = self._drain_timeout if self._last_moment is None else self._last_moment - time.monotonic()
        recorder.close(max(_LEAST, left))

    def announced(self, others: Mapping[str, str]) -> None:
        """Learn where what listens beside the main port does so, by its name."""
        for each in self.beside:
            self._page.reach.tensorflow_serving_port = int(others[each.name].rpartition(":")[2])

    @asynccontextmanager
    async def _lifespan(self, _: Litestar) -> AsyncGenerator[None]:
        if self.grpc is not None:
            await self.grpc.start()
        self.loading.start()
        try:
            async with polling(self.engine.repository, self._poll_seconds):
                yield
        finally:
            if self.grpc is not None:
                await self.grpc.stop()
            await self.loading.stop()
            self.engine.close()
            await self.engine.ended(_TELLING)
            self._closing.close()


def _grpc_server(
    engine: Engine, settings: ServerSettings, transport: Transport, interceptors: Sequence[CallAccess]
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
    """The whole page on a loopback address, or where it is wanted; else GRPS's part of it alone."""
    served = beside[0] if beside else None
    reach = Reach(grpc, served and served.app, served.port if served else 0)
    local = names_loopback(settings.host)
    return Page(
        engine,
        # Elsewhere, somebody who is not a browser can claim any address of its own.
        admin=False if settings.page_admin is None and not local else settings.page_admin,
        reach=reach,
        chariot_protocol=settings.chariot_protocol,
        whole=local if settings.page is None else settings.page,
        recorded=recorded,
        drift=drift,
        access=access,
    )


def _listeners(settings: ServerSettings) -> Mapping[HttpListener, int]:
    """The protocols with ports of their own that are wanted, and their ports."""
    if not settings.tensorflow_serving:
        return {}
    wanted = (TensorFlowServing(cors=True),) if settings.tensorflow_serving_cors else LISTENERS
    return dict.fromkeys(wanted, settings.tensorflow_serving_port)


def _drift(settings: ServerSettings, registry: Registry, metrics: CollectorRegistry) -> "Drift | None":
    if not settings.drift:
        for name, given in (("similarity", settings.drift_similarity), ("webhook", settings.drift_webhook)):
            if given:
                raise SettingsError(f"--drift-{name} needs --drift")
        return None
    from app.assembly.drift import Drift

    return Drift(settings, lambda: [each.source for each in registry.registrations if each.wanted], metrics)


def _labels(registry: Registry, model: str) -> Collection[str]:
    """The labels that any loaded version of a model declares."""
    loaded = [each.servable for each in registry.versions(model)]
    return {label for servable in loaded if servable is not None for label in servable.description.labels}


def _tracing(endpoint: str) -> "Tracing":
    try:
        from app.observers.tracing import Tracing, otlp_exporter
    except ImportError as error:
        message = f"--otlp-endpoint needs the extra otel, pip install charioteer[otel] ({error})"
        raise SettingsError(message) from None
    return Tracing(otlp_exporter(endpoint))
