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


class InferenceStatistics(msgspec.Struct):
    """The durations of all requests: of the successful ones, of those that failed, and of the steps of the former.

    `queue` is waiting for a worker, `compute_input` decoding images and parameters, `compute_infer` the model,
    including its own pre- and postprocessing, and `compute_output` thresholds, filters and order. The extension
    requires the fields of a cache, which this server does not have.
    """

    success: Duration = msgspec.field(default_factory=Duration)
    fail: Duration = msgspec.field(default_factory=Duration)
    queue: Duration = msgspec.field(default_factory=Duration)
    compute_input: Duration = msgspec.field(default_factory=Duration)
    compute_infer: Duration = msgspec.field(default_factory=Duration)
    compute_output: Duration = msgspec.field(default_factory=Duration)
    cache_hit: Duration = msgspec.field(default_factory=Duration)
    cache_miss: Duration = msgspec.field(default_factory=Duration)


class BatchStatistics(msgspec.Struct):
    """The durations of the successful requests of one batch size."""

    batch_size: int
    compute_input: Duration = msgspec.field(default_factory=Duration)
    compute_infer: Duration = msgspec.field(default_factory=Duration)
    compute_output: Duration = msgspec.field(default_factory=Duration)


class ModelStatistics(msgspec.Struct):
    """The statistics of one version of one model, as the extension returns them.

    `last_inference` is in milliseconds since the epoch, 0 if there was none. Each input of a batch counts as an
    inference, and a batch counts as one execution.
    """

    name: str
    version: str
    last_inference: int = 0
    inference_count: int = 0
    execution_count: int = 0
    inference_stats: InferenceStatistics = msgspec.field(default_factory=InferenceStatistics)
    batch_stats: list[BatchStatistics] = msgspec.field(default_factory=list[BatchStatistics])


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
            model = self._of(context.model_name, context.model_version)
            if context.outcome is not None:
                model.inference_stats.fail.add(context.total)
                return
            model.last_inference = time.time_ns() // 1_000_000
            model.inference_count += context.batch_size
            model.execution_count += 1
            model.inference_stats.success.add(context.total)
            model.inference_stats.queue.add(context.queue)
            batch = next((batch for batch in model.batch_stats if batch.batch_size == context.batch_size), None)
            if batch is None:
                model.batch_stats.append(batch := BatchStatistics(context.batch_size))
                model.batch_stats.sort(key=lambda batch: batch.batch_size)
            for statistics in (model.inference_stats, batch):
                statistics.compute_input.add(context.decode_ns)
                statistics.compute_infer.add(context.model_ns)
                statistics.compute_output.add(context.postprocess_ns)

    def for_model(self, name: str, version: str) -> ModelStatistics:
        """Return a copy of the statistics of a model version."""
        with self._lock:
            return deepcopy(self._of(name, version))

    def _of(self, name: str, version: str) -> ModelStatistics:
        key = (name, version)
        if key not in self._models:
            self._models[key] = ModelStatistics(name, version)
        return self._models[key]


def start(host: Host) -> Parts:
    """Count inferences, and name the plugin's extensions in the metadata of the server."""
    statistics = Statistics()
    host.provide(Statistics, statistics)
    extensions = ("statistics", "model_repository", "model_configuration")
    return Parts(batched_observers=(statistics,), extensions=extensions)
