"""Prometheus metrics of inferences."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.engine.batched_observers import BatchedObservers
from app.engine.request_context import RequestContext

__all__ = ("FlushBeforeMetrics", "Metrics")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_EXPLANATION_SECONDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)


class Metrics:
    """Count inferences, their durations and invalid metadata. Explanations have their own metrics.

    Args:
        registry: the registry for the metrics: one for each server, never the library's global one.
        has_model: return whether a model has the name. Other names are counted as "", because clients may invent them.
    """

    def __init__(self, registry: CollectorRegistry, has_model: Callable[[str], bool]) -> None:
        self._has_model = has_model
        labels = ("protocol", "model", "version", "outcome")
        self._inferences = Counter("charioteer_inferences", "Finished inference requests.", labels, registry=registry)
        self._seconds = Histogram(
            "charioteer_inference_seconds",
            "Seconds from the arrival of a request's body to its answer, including the wait.",
            labels,
            registry=registry,
            buckets=_SECONDS,
        )
        self._queue = Histogram(
            "charioteer_queue_seconds",
            "Seconds that requests waited for a worker.",
            ("protocol",),
            registry=registry,
            buckets=_SECONDS,
        )
        self._explanations = Counter(
            "charioteer_explanations", "Finished explanation requests.", labels, registry=registry
        )
        self._explanation_seconds = Histogram(
            "charioteer_explanation_seconds",
            "Seconds from the arrival of a request's body to its explained answer, including the wait.",
            labels,
            registry=registry,
            buckets=_EXPLANATION_SECONDS,
        )
        self._faults = Counter(
            "charioteer_metadata_faults",
            "Parts of custom metadata that could not be read. The inferences were answered.",
            ("protocol", "model"),
            registry=registry,
        )

    def observe(self, context: RequestContext, /) -> None:
        protocol, version = context.protocol, context.model_version
        model = context.model_name if self._has_model(context.model_name) else ""
        outcome = context.outcome.value if context.outcome else "ok"
        if context.explanation:
            self._explanations.labels(protocol, model, version, outcome).inc()
            self._explanation_seconds.labels(protocol, model, version, outcome).observe(context.total / 1e9)
        else:
            self._inferences.labels(protocol, model, version, outcome).inc(context.count)
            self._seconds.labels(protocol, model, version, outcome).observe(context.total / 1e9)
            self._queue.labels(protocol).observe(context.queue / 1e9)
        faults = sum(len(metadata.faults) for metadata in context.metadata)
        if faults:
            self._faults.labels(protocol, model).inc(faults)


class FlushBeforeMetrics(Collector):
    """Make metrics that are registered after this one complete when they are collected.

    Attributes:
        observers: the observers behind them; None before the engine exists.
    """

    def __init__(self) -> None:
        self.observers: BatchedObservers | None = None

    def collect(self) -> Iterator[Metric]:
        if self.observers is not None:
            self.observers.flush()
        return iter(())
