"""The service: engine, observers, protocols and application, wired."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from litestar import Litestar
from prometheus_client import CollectorRegistry

from app.assembly.models import load
from app.engine.engine import Engine
from app.engine.registry import Registry
from app.observers.metrics import Metrics
from app.observers.request_log import RequestLog
from app.protocols import PROTOCOLS
from app.server.asgi import create_app
from app.server.loading import ModelLoading
from app.settings.model import ModelSource
from app.settings.server import ServerSettings
from tasks.exchange.limits import Limits

__all__ = ("Service",)


class Service:
    """A server's parts, built from its settings; models are loaded when the application starts.

    Args:
        settings: of the server.
        models: what it serves.

    Raises:
        ModelError: when two models want the same name.
    """

    def __init__(self, settings: ServerSettings, models: Sequence[ModelSource]) -> None:
        metrics = CollectorRegistry()
        limits = Limits(
            max_pixels=settings.max_pixels,
            max_request_pixels=settings.max_request_pixels,
            max_inputs=settings.max_inputs,
        )
        self.registry = Registry(models)
        observers = [RequestLog(), Metrics(metrics)]
        self.engine = Engine(self.registry, observers, limits, settings.worker_count, settings.max_waiting)
        self.loading = ModelLoading(self.registry, load)
        protocols = [each for each in PROTOCOLS if each.name == settings.chariot_protocol]
        self.app = create_app(self.engine, protocols, metrics, settings.max_request_bytes, self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Litestar) -> AsyncGenerator[None]:
        self.loading.start()
        try:
            yield
        finally:
            await self.loading.stop()
            self.engine.close()
