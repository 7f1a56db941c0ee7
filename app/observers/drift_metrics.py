"""Prometheus metrics of drift."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from app.drift.monitor import Window

__all__ = ("DriftMetrics",)


class DriftMetrics:
    """What Prometheus is told.

    Args:
        registry: where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        model = ("model",)
        self.detected = Gauge(
            "charioteer_drift_detected", "1 when the last window has drifted, else 0.", model, registry=registry
        )
        self.p = Gauge(
            "charioteer_drift_p",
            "P-value of each test of the last window, corrected for the other tests.",
            ("model", "test"),
            registry=registry,
        )
        self.similarity = Gauge(
            "charioteer_drift_similarity",
            "Mean similarity to the baseline of the last window's images.",
            model,
            registry=registry,
        )
        self.baseline_similarity = Gauge(
            "charioteer_drift_baseline_similarity",
            "Mean similarity of the baseline's own images to one another.",
            model,
            registry=registry,
        )
        self.windows = Counter("charioteer_drift_windows", "Windows that were judged.", model, registry=registry)
        self.images = Counter(
            "charioteer_drift_images",
            "Images that were measured, or not: skipped to spare the processor, dropped in a rush, failed.",
            ("model", "outcome"),
            registry=registry,
        )
        self.alerts = Counter(
            "charioteer_drift_alerts", "Alerts to the webhook, by how they ended.", ("outcome",), registry=registry
        )

    def forget(self, model: str) -> None:
        """A model is no longer watched: what was last said of it would stand for ever."""
        for each in (self.detected, self.similarity, self.baseline_similarity):
            each.remove_by_labels({"model": model})
        self.p.remove_by_labels({"model": model})

    def judged(self, window: Window) -> None:
        """A window is over."""
        found = window.comparison
        self.detected.labels(window.model).set(found.drifted)
        self.similarity.labels(window.model).set(found.production_similarity)
        self.baseline_similarity.labels(window.model).set(found.baseline_similarity)
        self.windows.labels(window.model).inc()
        for test in found.tests:
            self.p.labels(window.model, test.name).set(test.adjusted)
