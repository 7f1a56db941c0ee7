"""Prometheus metrics of what the server is at the moment somebody asks: ready or not, and how busy."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.engine.engine import Engine
from app.engine.registry import ModelState

__all__ = ("StateMetrics",)


class StateMetrics(Collector):
    """Tells of readiness and load, and of each model that is wanted.

    Args:
        engine: asked whenever metrics are read.
        registry: where the metrics are registered.
    """

    def __init__(self, engine: Engine, registry: CollectorRegistry) -> None:
        self._engine = engine
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """The metrics without their values: nothing is asked before there is anybody who reads them."""
        return _families()

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        engine = self._engine
        ready, models, in_flight, waiting = families = _families()
        ready.add_metric([], 0 if engine.unready else 1)
        for each in engine.registry.registrations:
            if each.wanted:
                models.add_metric([each.source.name, each.source.version], int(each.state is ModelState.READY))
        in_flight.add_metric([], engine.in_flight)
        waiting.add_metric([], engine.waiting)
        return families


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("charioteer_ready", "1 while load balancers may send requests, as /ready says."),
        GaugeMetricFamily(
            "charioteer_model_ready",
            "1 while a model that is wanted can answer, 0 while it cannot.",
            labels=("model", "version"),
        ),
        GaugeMetricFamily("charioteer_requests_in_flight", "Requests that are being answered or wait."),
        GaugeMetricFamily("charioteer_requests_waiting", "Those of them that wait for a worker."),
    )
