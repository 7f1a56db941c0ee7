"""Prometheus metrics of inferences."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.engine.events import InferenceEvent

__all__ = ("Metrics",)

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

    def observe(self, event: InferenceEvent, /) -> None:
        protocol, version = event.info.protocol, event.model_version
        model = event.model_name if self._has_model(event.model_name) else ""
        outcome = event.outcome.value if event.outcome else "ok"
        if event.explanation:
            self._explanations.labels(protocol, model, version, outcome).inc()
            self._explanation_seconds.labels(protocol, model, version, outcome).observe(event.total / 1e9)
        else:
            self._inferences.labels(protocol, model, version, outcome).inc(event.count)
            self._seconds.labels(protocol, model, version, outcome).observe(event.total / 1e9)
            self._queue.labels(protocol).observe(event.queue / 1e9)
        faults = sum(len(metadata.faults) for metadata in event.metadata)
        if faults:
            self._faults.labels(protocol, model).inc(faults)
