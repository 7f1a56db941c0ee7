"""What each model has done since the server started, in the terms of the V2 statistics extension."""

import threading
import time

import msgspec

from app.engine.events import InferenceEvent

__all__ = ("Duration", "ModelStatistics", "Statistics")


class Duration(msgspec.Struct):
    """How often something was done, and how long it took altogether."""

    count: int = 0
    ns: int = 0

    def add(self, nanoseconds: int, count: int = 1) -> None:
        """Once more."""
        self.count += count
        self.ns += nanoseconds


class BatchStatistics(msgspec.Struct):
    """The executions of one batch size."""

    compute_input: Duration = msgspec.field(default_factory=Duration)
    compute_infer: Duration = msgspec.field(default_factory=Duration)
    compute_output: Duration = msgspec.field(default_factory=Duration)


class ModelStatistics(msgspec.Struct):
    """One version of one model. Every inference of a batch counts, an execution counts once.

    Attributes:
        last_inference: milliseconds since the epoch, 0 when there was none.
        success: whole requests that were answered.
        fail: whole requests that were not.
        queue: waiting for a worker.
        compute_input: reading images and parameters.
        compute_infer: the model, its own pre- and post-processing included.
        compute_output: thresholds, filters, order.
        batches: by batch size.
    """

    last_inference: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = msgspec.field(default_factory=Duration)
    fail: Duration = msgspec.field(default_factory=Duration)
    queue: Duration = msgspec.field(default_factory=Duration)
    compute_input: Duration = msgspec.field(default_factory=Duration)
    compute_infer: Duration = msgspec.field(default_factory=Duration)
    compute_output: Duration = msgspec.field(default_factory=Duration)
    batches: dict[int, BatchStatistics] = msgspec.field(default_factory=dict[int, BatchStatistics])


class Statistics:
    """An observer that counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[tuple[str, str], ModelStatistics] = {}

    def observe(self, event: InferenceEvent, /) -> None:
        if not event.model_version:
            return
        with self._lock:
            found = self._models.setdefault((event.model_name, event.model_version), ModelStatistics())
            if event.outcome is not None:
                found.fail.add(event.total)
                return
            found.last_inference = time.time_ns() // 1_000_000
            found.inference_count += event.batch_size
            found.execution_count += 1
            found.success.add(event.total)
            found.queue.add(event.queue)
            batch = found.batches.setdefault(event.batch_size, BatchStatistics())
            for each in (found, batch):
                each.compute_input.add(event.timings.decode)
                each.compute_infer.add(event.timings.model)
                each.compute_output.add(event.timings.refine)

    def of(self, name: str, version: str) -> ModelStatistics:
        """A copy of what is known of a model version by now."""
        with self._lock:
            found = self._models.get((name, version), ModelStatistics())
            return msgspec.convert(msgspec.to_builtins(found), ModelStatistics, str_keys=True)
