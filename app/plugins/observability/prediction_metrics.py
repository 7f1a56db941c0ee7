"""Prometheus metrics of inputs and predictions: image sizes, batch sizes, labels and scores."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from app.core.engine.request_context import RequestContext
from app.core.hooks import Host
from tasks.task import BEST_ONLY
from tasks.vision.image import image_of

OTHER_LABEL = "other"
"""The label for labels that a model does not declare: clients choose the labels of an open vocabulary."""

_MAX_LABELS = 2000
_MAX_WAITING = 1000
_SCORES = tuple(round(0.1 * step, 1) for step in range(1, 11))
_PIXELS = tuple(float(4**step * 1000) for step in range(9))
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


def count_predictions(host: Host) -> "PredictionMetrics":
    """Return the observer that counts predictions."""
    registry = host.engine.registry

    def labels(model: str) -> Collection[str]:
        """Return the labels that any loaded version of a model declares."""
        servables = [registration.servable for registration in registry.versions(model)]
        return {label for servable in servables if servable is not None for label in servable.description.labels}

    return PredictionMetrics(host.metrics, labels)


class PredictionMetrics(Collector):
    """Count labels, scores, image sizes and batch sizes of successful inferences, without explanations and trials.

    For classifications only the best class counts, because every answer contains all classes. Labels that are not among
    the `declared_labels` of a model are counted as `OTHER_LABEL`. Many values are counted at once: a hundred boxes cost
    little more than a few.
    """

    def __init__(self, registry: CollectorRegistry, declared_labels: Callable[[str], Collection[str]]) -> None:
        self._declared_labels = declared_labels
        self._lock = threading.Lock()
        self._predictions: dict[str, Counter[str]] = {}
        self._scores = _Histograms(_SCORES)
        self._pixels = _Histograms(_PIXELS)
        self._sizes = _Histograms(_SIZES)
        self._waiting: defaultdict[str, list[str]] = defaultdict(list)
        registry.register(self)

    def observe(self, context: RequestContext, /) -> None:
        result = context.result
        if context.outcome is not None or context.explanation or context.trial or result is None:
            return
        model = context.model_name
        with self._lock:
            for sample in result.samples:
                labels: Sequence[str] | None = getattr(sample.prediction, "labels", None)
                scores: NDArray[np.floating] | None = getattr(sample.prediction, "scores", None)
                if labels and scores is not None:
                    count = 1 if context.task_type in BEST_ONLY else len(labels)
                    self._scores.add(model, *scores[:count].tolist())
                    self._waiting[model] += labels[:count]
                    if len(self._waiting[model]) >= _MAX_WAITING:
                        self._count_labels(model)
                image = image_of(sample.item)
                if image is not None:
                    height, width = image.full_size or image.pixels.shape[:2]
                    self._pixels.add(model, float(width * height))
            self._sizes.add(model, float(context.batch_size))

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            for model in self._waiting:
                self._count_labels(model)
            predictions = CounterMetricFamily(
                "charioteer_predictions", "Predictions by label.", labels=("model", "label")
            )
            for model, counts in self._predictions.items():
                for label, count in counts.items():
                    predictions.add_metric((model, label), count)
            metrics = [
                predictions,
                self._scores.family("charioteer_prediction_score", "Scores of predictions."),
                self._pixels.family("charioteer_image_pixels", "Pixels of the images in requests."),
                self._sizes.family("charioteer_batch_size", "Images, or texts, of each request."),
            ]
        yield from metrics

    def _count_labels(self, model: str) -> None:
        counts = self._predictions.setdefault(model, Counter())
        new_counts, self._waiting[model] = Counter(self._waiting[model]), []
        declared = self._declared_labels(model) if new_counts.keys() - counts.keys() else ()
        for label, count in new_counts.items():
            has_own_series = label in counts or (len(counts) < _MAX_LABELS and label in declared)
            counts[label if has_own_series else OTHER_LABEL] += count


class _Histograms:
    """One histogram for each model. `bounds` are the ascending upper bounds of all buckets but the last."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.array(bounds)
        self._names = [*(f"{bound:g}" if bound < 1e6 else f"{bound:.0f}" for bound in bounds), "+Inf"]
        self._waiting: defaultdict[str, list[float]] = defaultdict(list)
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._sums: defaultdict[str, float] = defaultdict(float)

    def add(self, model: str, *values: float) -> None:
        """Add values, which are counted later."""
        waiting = self._waiting[model]
        waiting += values
        if len(waiting) >= _MAX_WAITING:
            self._count(model)

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        for model in self._waiting:
            self._count(model)
        histograms = HistogramMetricFamily(name, documentation, labels=("model",))
        for model, counts in self._counts.items():
            buckets = list(zip(self._names, counts.cumsum().astype(float).tolist(), strict=True))
            histograms.add_metric((model,), buckets, self._sums[model])
        return histograms

    def _count(self, model: str) -> None:
        values, self._waiting[model] = np.array(self._waiting[model]), []
        # One score that is not a number would remain in the sum forever.
        values = values[np.isfinite(values)]
        counts = np.bincount(np.searchsorted(self._bounds, values), minlength=len(self._names))
        self._counts[model] = self._counts.get(model, 0) + counts
        self._sums[model] += float(values.sum())
