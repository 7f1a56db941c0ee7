"""The Prometheus metric of isolated models whose process ended."""

from prometheus_client import CollectorRegistry, Counter

from app.settings.model import ModelSource

__all__ = ("RestartMetrics",)

_CAUSES = {"it hung": "hung", "it was not loaded": "not loaded"}


class RestartMetrics:
    """Count restarts of models' processes by cause.

    Args:
        registry: the registry for the metric.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._restarts = Counter(
            "charioteer_model_restarts",
            "Processes of isolated models that ended, were killed because they hung, or could not be loaded again.",
            ("model", "version", "cause"),
            registry=registry,
        )

    def count_restart(self, source: ModelSource, reason: str) -> None:
        """Count a process that ended; `reason` is a short text."""
        cause = reason if reason.startswith(("signal", "exit")) else _CAUSES.get(reason.partition(":")[0], "other")
        self._restarts.labels(source.name, source.version, cause).inc()
