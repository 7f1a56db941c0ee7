"""Compare windows of a server's images with a baseline, and export the results as metrics."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge

from app.plugins.drift.baseline import Baseline
from app.plugins.drift.comparison import compare
from app.plugins.drift.feature_space import Neighbourhood
from app.plugins.drift.measurement import DriftInput, Embedder, measure_images
from app.plugins.drift.result import DriftTestResult
from app.plugins.drift.sample import MIN_IMAGES, Observation, Sample, build_sample


class DriftWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON summary of a complete window: the body of a notification, and a row of the page.

    Attributes:
        drifted: whether its images have drifted; a notification is false when drift ends.
        started: arrival of the first image of the window, in seconds since 1970.
        ended: arrival of the last image of the window, in seconds since 1970.
        similarity: mean similarity to the baseline.
        baseline_similarity: mean similarity of the baseline's images to one another.
    """

    model: str
    drifted: bool
    started: float
    ended: float
    images: int
    alpha: float
    similarity: float
    baseline_similarity: float
    tests: Sequence[DriftTestResult]


class Monitor:
    """Measure the images of one model in the same way as its baseline, and evaluate each complete window of them.

    Only one thread may call `add`. `sample` is that of the baseline, and `drifted` the last verdict, at first no drift.

    Args:
        model: the name of the model.
        baseline: the baseline of the model.
        embedder: the embedder that made the baseline; None for a baseline without embeddings.
        size: number of images in a window.
        seconds: maximum duration of a window with enough images to evaluate; None for no maximum.
        clock: seconds since 1970.
        monotonic: a monotonic clock in seconds.
    """

    def __init__(
        self,
        model: str,
        baseline: Baseline,
        embedder: Embedder | None,
        size: int,
        seconds: float | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sample = baseline.sample
        self.drifted = False
        self._model = model
        self._embedder = embedder
        self._keys = frozenset(key for entry in self.sample.metadata for key in entry)
        self._neighbourhood = Neighbourhood(self.sample.numbers, self.sample.embeddings)
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._monotonic = monotonic
        self._images: list[Observation] = []
        self._started = self._started_monotonic = 0.0

    def measure(self, inputs: Sequence[DriftInput], task_type: str) -> list[Observation]:
        """Measure images.

        Raises:
            InferenceError: when the embedder fails.
        """
        # Other keys cannot be compared, and clients choose how many there are.
        kept = [
            msgspec.structs.replace(
                item, metadata={key: text for key, text in item.metadata.items() if key in self._keys}
            )
            for item in inputs
        ]
        return list(measure_images(kept, task_type if self.sample.task_type else "", self._embedder))

    def similarities(self, observations: Sequence[Observation]) -> Sequence[float | None]:
        """Return the similarity of each image to the baseline, 0..1; None for an incomplete measurement."""
        similarities: list[float | None] = []
        for observation in observations:
            numbers, width = observation.numbers, self.sample.embeddings.shape[1]
            embedding = np.zeros(0, np.float32) if observation.embedding is None else observation.embedding
            if len(numbers) != len(self.sample.features) or len(embedding) != width:
                similarities.append(None)
                continue
            distances = self._neighbourhood.distances_of(numbers[None], embedding[None])
            similarity = float(self._neighbourhood.similarity(distances)[0])
            similarities.append(similarity if np.isfinite(similarity) else None)
        return similarities

    def add(self, observations: Sequence[Observation], task_type: str) -> tuple[DriftWindow, bool] | None:
        """Add images. If they complete the window, return it, and whether its verdict differs from the last one.

        Raises:
            DriftError: when a complete window cannot be compared; the next window has begun.
        """
        now = self._clock()
        if not self._images:
            self._started, self._started_monotonic = now, self._monotonic()
        self._images += observations
        if not self._is_complete:
            return None
        images, self._images = self._images, []
        sample = build_sample(images, task_type if self.sample.task_type else "", "the window")
        neighbourhood = self._neighbourhood if _columns(sample) == _columns(self.sample) else None
        comparison = compare(self.sample, sample, neighbourhood=neighbourhood)
        changed, self.drifted = comparison.drifted is not self.drifted, comparison.drifted
        window = DriftWindow(
            model=self._model,
            drifted=comparison.drifted,
            started=self._started,
            ended=now,
            images=comparison.production,
            alpha=comparison.alpha,
            similarity=comparison.production_similarity,
            baseline_similarity=comparison.baseline_similarity,
            tests=comparison.tests,
        )
        return window, changed

    @property
    def _is_complete(self) -> bool:
        if len(self._images) >= self._size:
            return True
        timed_out = self._seconds is not None and self._monotonic() - self._started_monotonic >= self._seconds
        return timed_out and len(self._images) >= MIN_IMAGES


class DriftMetrics:
    """The Prometheus metrics of drift monitoring."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        self.detected = gauge("charioteer_drift_detected", "1 when the last window has drifted, else 0.", ["model"])
        self.p_value = gauge(
            "charioteer_drift_p",
            "P-value of each test of the last window, corrected for the other tests.",
            ["model", "test"],
        )
        self.similarity = gauge(
            "charioteer_drift_similarity", "Mean similarity to the baseline of the last window's images.", ["model"]
        )
        self.baseline_similarity = gauge(
            "charioteer_drift_baseline_similarity",
            "Mean similarity of the baseline's own images to one another.",
            ["model"],
        )
        self.windows = counter("charioteer_drift_windows", "Windows that were tested for drift.", ["model"])
        self.images = counter(
            "charioteer_drift_images",
            "Images by outcome: measured, skipped by the rate limit, dropped because too many wait, or failed.",
            ["model", "outcome"],
        )
        self.alerts = counter("charioteer_drift_alerts", "Alerts to the webhook, by outcome.", ["outcome"])

    def remove(self, model: str) -> None:
        """Remove the metrics of a model that is no longer monitored, because they would stay forever."""
        for gauge in (self.detected, self.p_value, self.similarity, self.baseline_similarity):
            gauge.remove_by_labels({"model": model})

    def update(self, window: DriftWindow) -> None:
        self.detected.labels(window.model).set(window.drifted)
        self.similarity.labels(window.model).set(window.similarity)
        self.baseline_similarity.labels(window.model).set(window.baseline_similarity)
        self.windows.labels(window.model).inc()
        for test in window.tests:
            self.p_value.labels(window.model, test.name).set(test.adjusted)


def _columns(sample: Sample) -> tuple[Sequence[str], int]:
    return tuple(sample.features), sample.embeddings.shape[1]
