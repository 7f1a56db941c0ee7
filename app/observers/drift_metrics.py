"""Prometheus metrics of drift."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from app.drift.monitor import DriftWindow

__all__ = ("DriftMetrics",)


class DriftMetrics:
    """The Prometheus metrics of drift monitoring.

    Args:
        registry: the registry for the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        model = ("model",)
        self.detected = Gauge(
            "charioteer_drift_detected", "1 when the last window has drifted, else 0.", model, registry=registry
        )
        self.p_value = Gauge(
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
        self.windows = Counter(
            "charioteer_drift_windows", "Windows that were tested for drift.", model, registry=registry
        )
        self.images = Counter(
            "charioteer_drift_images",
            "Images by outcome: measured, skipped by the rate limit, dropped because too many wait, or failed.",
            ("model", "outcome"),
            registry=registry,
        )
        self.alerts = Counter(
            "charioteer_drift_alerts", "Alerts to the webhook, by outcome.", ("outcome",), registry=registry
        )

    def remove(self, model: str) -> None:
        """Remove the metrics of a model that is no longer monitored, because they would stay forever."""
        for gauge in (self.detected, self.similarity, self.baseline_similarity):
            gauge.remove_by_labels({"model": model})
        self.p_value.remove_by_labels({"model": model})

    def update(self, window: DriftWindow) -> None:
        """Update the metrics after a window has been tested."""
        comparison = window.comparison
        self.detected.labels(window.model).set(comparison.drifted)
        self.similarity.labels(window.model).set(comparison.production_similarity)
        self.baseline_similarity.labels(window.model).set(comparison.baseline_similarity)
        self.windows.labels(window.model).inc()
        for test in comparison.tests:
            self.p_value.labels(window.model, test.name).set(test.adjusted)
