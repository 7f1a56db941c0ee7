"""The metric of restarted model processes."""

from weakref import WeakSet

from prometheus_client import CollectorRegistry, Counter

from app.core.hooks import Host, Parts
from app.core.settings.model import ModelSource

_RESTART_CAUSES = {"it hung": "hung", "it was not loaded": "not loaded"}


class RestartMetrics:
    """Count restarts of models' processes by cause."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._restarts = Counter(
            "charioteer_model_restarts",
            "Processes of isolated models that ended, were killed because they hung, or could not be loaded again.",
            ("model", "version", "cause"),
            registry=registry,
        )

    def count(self, source: ModelSource, reason: str) -> None:
        """Count a process that ended; `reason` is a short text."""
        if not reason.startswith(("signal", "exit")):
            reason = _RESTART_CAUSES.get(reason.partition(":")[0], "other")
        self._restarts.labels(source.name, source.version, reason).inc()


watchers: "WeakSet[RestartMetrics]" = WeakSet()
"""Those of the servers in this process, usually one."""


def start(host: Host) -> Parts:
    """Count restarts until the server ends."""
    metrics = RestartMetrics(host.metrics)
    watchers.add(metrics)
    # The parts keep the metrics alive.
    return Parts(close=lambda _: watchers.discard(metrics))


def count_restart(source: ModelSource, reason: str) -> None:
    """Count a process that ended unexpectedly or was killed, in all servers of this process."""
    for watcher in tuple(watchers):
        watcher.count(source, reason)
