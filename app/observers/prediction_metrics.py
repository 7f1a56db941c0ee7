"""Prometheus metrics of inputs and predictions: image sizes, batch sizes, labels and scores."""

import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from app.engine.request_context import RequestContext
from tasks.task import BEST_ONLY
from tasks.vision.image import image_of

OTHER_LABEL = "other"
"""The label for labels that a model does not declare: clients choose those of an open vocabulary."""

_MAX_LABELS = 2000
_MAX_PENDING = 64
_MAX_SIZE_FOR_PYTHON = 16
"""For lists of up to this size, Python is faster than NumPy."""
_SCORES = tuple(round(0.1 * step, 1) for step in range(1, 11))
_PIXELS = tuple(float(4**step * 1000) for step in range(9))
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class DeclaredLabels(Protocol):
    """Return the labels that a model declares; an empty collection for an unknown model."""

    def __call__(self, model: str, /) -> Collection[str]: ...


class PredictionMetrics(Collector):
    """Count labels, scores, image sizes and batch sizes of successful inferences, without explanations.

    For classifications only the best class counts, because every answer contains all classes. All predictions of a
    request are counted together: a hundred boxes cost no more than a few.

    Args:
        registry: the registry for the metrics.
        declared_labels: return the labels that a model declares; others are counted as `OTHER_LABEL`.
    """

    def __init__(self, registry: CollectorRegistry, declared_labels: DeclaredLabels) -> None:
        self._declared_labels = declared_labels
        self._lock = threading.Lock()
        self._predictions: dict[str, dict[str, int]] = {}
        self._scores = _Histograms(_SCORES)
        self._pixels = _Histograms(_PIXELS)
        self._sizes = _Histograms(_SIZES)
        self._pending: deque[tuple[str, list[str], list[float], list[float], float]] = deque()
        registry.register(self)

    def observe(self, context: RequestContext, /) -> None:
        result = context.result
        if context.outcome is not None or context.explanation or result is None:
            return
        # Counting many requests at once is cheaper; keep only what is counted, not the images.
        best_only = context.task_type in BEST_ONLY
        labels: list[str] = []
        scores: list[float] = []
        pixels: list[float] = []
        for sample in result.samples:
            sample_labels: Sequence[str] | None = getattr(sample.prediction, "labels", None)
            sample_scores: NDArray[np.floating] | None = getattr(sample.prediction, "scores", None)
            if sample_labels and sample_scores is not None:
                count = 1 if best_only else len(sample_labels)
                labels += sample_labels[:count]
                scores += sample_scores[:count].tolist()
            image = image_of(sample.item)
            if image is not None:
                height, width = image.full_size or image.pixels.shape[:2]
                pixels.append(float(width * height))
        self._pending.append((context.model_name, labels, scores, pixels, float(context.batch_size)))
        if len(self._pending) >= _MAX_PENDING:
            self._count_pending()

    def _count_pending(self) -> None:
        with self._lock:
            while self._pending:
                model, labels, scores, pixels, batch_size = self._pending.popleft()
                if labels:
                    self._count(model, labels)
                    self._scores.add(model, scores)
                if pixels:
                    self._pixels.add(model, pixels)
                self._sizes.add(model, (batch_size,))

    def collect(self) -> Iterator[Metric]:
        self._count_pending()
        with self._lock:
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

    def _count(self, model: str, labels: Sequence[str]) -> None:
        counts = self._predictions.setdefault(model, {})
        new_counts = (
            [(label, 1) for label in labels] if len(labels) <= _MAX_SIZE_FOR_PYTHON else Counter(labels).items()
        )
        declared = () if all(label in counts for label, _ in new_counts) else self._declared_labels(model)
        for label, count in new_counts:
            has_own_series = label in counts or (len(counts) < _MAX_LABELS and label in declared)
            name = label if has_own_series else OTHER_LABEL
            counts[name] = counts.get(name, 0) + count


class _Histograms:
    """One histogram for each model.

    Args:
        bounds: ascending upper bounds of the buckets; a bucket without upper bound is added.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._edges = np.array(bounds)
        self._names = [*(f"{bound:g}" if bound < 1e6 else f"{bound:.0f}" for bound in bounds), "+Inf"]
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def add(self, model: str, values: Sequence[float]) -> None:
        """Count values."""
        counts = self._counts.setdefault(model, [0] * len(self._names))
        if len(values) <= _MAX_SIZE_FOR_PYTHON:
            for value in values:
                counts[bisect_left(self._bounds, value)] += 1
        else:
            bucket_counts = np.bincount(np.searchsorted(self._edges, values), minlength=len(counts))
            for bucket, count in enumerate(bucket_counts.tolist()):
                counts[bucket] += count
        self._sums[model] = self._sums.get(model, 0.0) + sum(values)

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        """Return the histograms for Prometheus."""
        histograms = HistogramMetricFamily(name, documentation, labels=("model",))
        for model, counts in self._counts.items():
            buckets = [(end, float(count)) for end, count in zip(self._names, accumulate(counts), strict=True)]
            histograms.add_metric((model,), buckets, self._sums[model])
        return histograms
