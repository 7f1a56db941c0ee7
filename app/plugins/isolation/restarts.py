"""The metric of restarted model processes."""

from typing import Protocol
from weakref import WeakSet

from prometheus_client import CollectorRegistry, Counter

from app.core.hooks import Host, Parts
from app.core.settings.model import ModelSource

_RESTART_CAUSES = {"it hung": "hung", "it was not loaded": "not loaded"}


class Watcher(Protocol):
    """Is called for each process that ended unexpectedly or was killed."""

    def count_restart(self, source: ModelSource, reason: str) -> None: ...


watchers: "WeakSet[Watcher]" = WeakSet()
"""The metrics of the servers in this process, usually one."""


class RestartMetrics:
    """Count restarts of models' processes by cause."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._restarts = Counter(
            "charioteer_model_restarts",
            "Processes of isolated models that ended, were killed because they hung, or could not be loaded again.",
            ("model", "version", "cause"),
            registry=registry,
        )

    def count_restart(self, source: ModelSource, reason: str) -> None:
        """Count a process that ended; `reason` is a short text."""
        cause = (
            reason if reason.startswith(("signal", "exit")) else _RESTART_CAUSES.get(reason.partition(":")[0], "other")
        )
        self._restarts.labels(source.name, source.version, cause).inc()


def start(host: Host) -> Parts:
    """Count restarts until the server ends."""
    metrics = RestartMetrics(host.metrics)
    watchers.add(metrics)
    # The parts keep the metrics alive.
    return Parts(close=lambda _: watchers.discard(metrics))


def count_restart(source: ModelSource, reason: str) -> None:
    """Report a process that ended to all watchers."""
    for watcher in tuple(watchers):
        watcher.count_restart(source, reason)
