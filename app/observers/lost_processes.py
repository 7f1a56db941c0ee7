"""Prometheus metric of models whose own process was lost."""

from prometheus_client import CollectorRegistry, Counter

from app.settings.model import ModelSource

__all__ = ("LostProcesses",)

_CAUSES = {"it hung": "hung", "it was not loaded": "not loaded"}


class LostProcesses:
    """Counts how often a model's process had to be started again, and why.

    Args:
        registry: where the metric is registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._restarts = Counter(
            "charioteer_model_restarts",
            "Processes of isolated models that ended, were killed because they hung, or could not be loaded again.",
            ("model", "version", "cause"),
            registry=registry,
        )

    def lost(self, source: ModelSource, how: str) -> None:
        """A process has ended, `how` in a few words."""
        cause = how if how.startswith(("signal", "exit")) else _CAUSES.get(how.partition(":")[0], "other")
        self._restarts.labels(source.name, source.version, cause).inc()
