"""Report the state of recording: metrics, a log record for each change, and errors for clients."""

import logging
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.plugins.recording.stores.store import StoreError, StoreFault
from tasks.inference.error import ErrorKind, InferenceError

BEHIND = "behind"
"""The queue of inferences is full."""

STOPPING = "stopping"
"""The server ended before the inference could be written."""

UNWRITABLE = "unwritable"
"""The inference could not be converted into rows."""

_COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_logger = logging.getLogger(__name__)


_REASONS = {
    BEHIND: "its store does not keep up",
    STOPPING: "the server is stopping",
    UNWRITABLE: "it cannot be converted for the store",
    StoreFault.FULL: "its store is full",
    StoreFault.LOCKED: "its store is locked",
    StoreFault.DAMAGED: "its store is damaged",
    StoreFault.UNREACHABLE: "its store cannot be reached",
    StoreFault.REJECTED: "its store rejected it",
    StoreFault.FAILED: "its store failed",
}


def not_recorded(reason: str) -> InferenceError:
    """Return the error for a client whose inference was not recorded."""
    return InferenceError(ErrorKind.MODEL_NOT_READY, f"The inference could not be recorded: {_REASONS[reason]}")


class RecordingMetrics:
    """Count recorded and dropped inferences. `store` is the address of the store without secrets."""

    def __init__(self, registry: CollectorRegistry, store: str) -> None:
        self._store = store
        self._failing = self._behind = False
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._recorded = counter("charioteer_recording_recorded", "Inferences that were recorded.")
        self._dropped = counter(
            "charioteer_recording_dropped",
            "Requests that were not recorded. With acknowledgement, they were rejected.",
            ("reason",),
        )
        self._failures = counter("charioteer_recording_failures", "Times that the store failed.", ("fault",))
        # Create every series at 0: Prometheus does not see the first increment of a new series.
        for reason in (BEHIND, STOPPING, UNWRITABLE, *StoreFault):
            self._dropped.labels(reason)
        for fault in StoreFault:
            self._failures.labels(fault.value)
        self._up = gauge("charioteer_recording_up", "1 while the store does what it should, 0 since it failed.")
        self._up.set(1)
        self._seconds = Histogram(
            "charioteer_recording_commit_seconds",
            "Seconds that it took to write what was waiting.",
            registry=registry,
            buckets=_COMMIT_BUCKETS,
        )
        self._queue = gauge("charioteer_recording_queue", "Requests that wait to be recorded.")

    def watch_queue(self, queue_length: Callable[[], float]) -> None:
        """Read the queue length from `queue_length` at every scrape."""
        self._queue.set_function(queue_length)

    def recorded(self, inferences: int, queue_length: int) -> None:
        self._recorded.inc(inferences)
        self._behind = self._behind and queue_length > 0
        self._up.set(1)
        if self._failing:
            self._failing = False
            _logger.warning("the store of recordings works again", extra={"store": self._store})

    def committed(self, seconds: float) -> None:
        self._seconds.observe(seconds)

    def dropped(self, reason: str, requests: int = 1) -> None:
        self._dropped.labels(reason).inc(requests)
        if reason == BEHIND and not self._behind:
            self._behind = True
            message = "the store of recordings is behind; what does not fit the queue is not recorded"
            _logger.error(message, extra={"store": self._store})

    def failed(self, error: StoreError) -> None:
        """Count a failure of the store, and log the first one."""
        self._failures.labels(error.fault.value).inc()
        self._up.set(0)
        if not self._failing:
            self._failing = True
            extra = {"store": self._store, "fault": error.fault.value, "reason": str(error)}
            _logger.error("the store of recordings failed", extra=extra)

    def lost_at_shutdown(self, requests: int) -> None:
        _logger.error("requests were not recorded before the end", extra={"store": self._store, "requests": requests})
