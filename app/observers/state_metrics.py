"""Prometheus metrics of the current state of the server: readiness and load."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.engine.engine import Engine
from app.engine.models.registry import ModelState

__all__ = ("StateMetrics",)


class StateMetrics(Collector):
    """Collect the readiness and load of the server, and the readiness of each wanted model.

    Args:
        engine: its state is read on every scrape.
        registry: the registry for the metrics.
    """

    def __init__(self, engine: Engine, registry: CollectorRegistry) -> None:
        self._engine = engine
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, so that registration does not read the engine."""
        return _families()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics with current values."""
        engine = self._engine
        ready, models, in_flight, waiting = families = _families()
        ready.add_metric([], 0 if engine.not_ready_reason else 1)
        for model in engine.registry.registrations:
            if model.enabled:
                models.add_metric([model.source.name, model.source.version], int(model.state is ModelState.READY))
        in_flight.add_metric([], engine.in_flight)
        waiting.add_metric([], engine.waiting)
        return families


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("charioteer_ready", "1 while load balancers may send requests, as /ready says."),
        GaugeMetricFamily(
            "charioteer_model_ready",
            "1 while a wanted model can answer, 0 while it cannot.",
            labels=("model", "version"),
        ),
        GaugeMetricFamily("charioteer_requests_in_flight", "Requests that run or wait."),
        GaugeMetricFamily("charioteer_requests_waiting", "Requests that wait for a worker."),
    )
