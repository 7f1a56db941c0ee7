"""Statistics of each model since the start of the server, for the statistics extension of V2."""

import threading
import time
from copy import deepcopy

import msgspec

from app.core.engine.request_context import RequestContext
from app.core.hooks import Host, Parts


class Duration(msgspec.Struct):
    """A count and the sum of durations."""

    count: int = 0
    ns: int = 0

    def add(self, nanoseconds: int) -> None:
        """Add one duration."""
        self.count += 1
        self.ns += nanoseconds


class BatchStatistics(msgspec.Struct):
    """The statistics of one batch size.

    Attributes:
        compute_input: decoding images and parameters.
        compute_infer: the model, including its own pre- and postprocessing.
        compute_output: thresholds, filters and order.
    """

    compute_input: Duration = msgspec.field(default_factory=Duration)
    compute_infer: Duration = msgspec.field(default_factory=Duration)
    compute_output: Duration = msgspec.field(default_factory=Duration)


class ModelStatistics(BatchStatistics):
    """The statistics of one version of one model.

    Attributes:
        last_inference: milliseconds since the epoch, 0 if there was none.
        inference_count: inputs; each input of a batch counts.
        execution_count: requests; a batch counts once.
        success: successful requests.
        fail: failed requests.
        queue: waiting for a worker.
        batches: by batch size.
    """

    last_inference: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = msgspec.field(default_factory=Duration)
    fail: Duration = msgspec.field(default_factory=Duration)
    queue: Duration = msgspec.field(default_factory=Duration)
    batches: dict[int, BatchStatistics] = msgspec.field(default_factory=dict[int, BatchStatistics])


class Statistics:
    """An observer that counts requests by model version."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[tuple[str, str], ModelStatistics] = {}

    def observe(self, context: RequestContext, /) -> None:
        # Explanations take hundreds of times as long.
        if context.explanation or not context.model_version:
            return
        with self._lock:
            model_statistics = self._models.setdefault((context.model_name, context.model_version), ModelStatistics())
            if context.outcome is not None:
                model_statistics.fail.add(context.total)
                return
            model_statistics.last_inference = time.time_ns() // 1_000_000
            model_statistics.inference_count += context.batch_size
            model_statistics.execution_count += 1
            model_statistics.success.add(context.total)
            model_statistics.queue.add(context.queue)
            batch = model_statistics.batches.setdefault(context.batch_size, BatchStatistics())
            for statistics in (model_statistics, batch):
                statistics.compute_input.add(context.decode_ns)
                statistics.compute_infer.add(context.model_ns)
                statistics.compute_output.add(context.postprocess_ns)

    def for_model(self, name: str, version: str) -> ModelStatistics:
        """Return a copy of the statistics of a model version."""
        with self._lock:
            return deepcopy(self._models.get((name, version), ModelStatistics()))


def start(host: Host) -> Parts:
    """Count inferences, and name the plugin's extensions in the metadata of the server."""
    statistics = Statistics()
    host.provide(Statistics, statistics)
    extensions = ("statistics", "model_repository", "model_configuration")
    return Parts(batched_observers=(statistics,), extensions=extensions)
