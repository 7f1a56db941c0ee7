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
from app.plugins.drift.measurement import DriftInput, Embed, measure_images
from app.plugins.drift.sample import MIN_IMAGES, Observation, build_sample
from app.plugins.drift.suite import DriftTestResult

_DECIMALS = 4


class DriftWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON summary of a complete window, a row of the page.

    `started` and `ended` are the arrival of its first and last image, in seconds since 1970. The similarities are means
    of its images to the baseline, and of the baseline's images to one another.
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


class ModelMonitor:
    """Measure the images of one model in the same way as its baseline, and evaluate each complete window of them.

    Only one thread may call `add`. `sample` is the baseline, and `drifted` the last verdict, at first no drift.
    `embedder` made the baseline, unless it has no embeddings. A window has `size` images, or lasts `seconds` if it has
    enough of them. `clock` returns seconds since 1970.
    """

    def __init__(
        self,
        model: str,
        baseline: Baseline,
        embedder: Embed | None,
        size: int,
        seconds: float | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sample = baseline.sample
        self.drifted = False
        self._model, self._embedder, self._size, self._seconds = model, embedder, size, seconds
        self._keys = frozenset(key for entry in self.sample.metadata for key in entry)
        self._neighbourhood = Neighbourhood(self.sample.numbers, self.sample.embeddings)
        self._clock, self._monotonic = clock, monotonic
        self._images: list[Observation] = []
        self._started = self._started_monotonic = 0.0

    def measure(self, inputs: Sequence[DriftInput], task_type: str) -> list[Observation]:
        """Measure images, without metadata that the baseline lacks: clients choose how many keys there are."""
        measured = measure_images(inputs, task_type if self.sample.task_type else "", self._embedder)
        kept = ({key: text for key, text in item.metadata.items() if key in self._keys} for item in inputs)
        return [msgspec.structs.replace(item, metadata=metadata) for item, metadata in zip(measured, kept, strict=True)]

    def similarity(self, observation: Observation) -> float | None:
        """Return the similarity of an image to the baseline, 0..1, rounded; None for an incomplete measurement."""
        numbers, width = observation.numbers, self.sample.embeddings.shape[1]
        embedding = np.zeros(0, np.float32) if observation.embedding is None else observation.embedding
        if len(numbers) != len(self.sample.features) or len(embedding) != width:
            return None
        distances = self._neighbourhood.distances_of(numbers[None], embedding[None])
        similarity = float(self._neighbourhood.similarity(distances)[0])
        return round(similarity, _DECIMALS) if np.isfinite(similarity) else None

    def add(self, observations: Sequence[Observation], task_type: str) -> tuple[DriftWindow, bool] | None:
        """Add images. If they complete the window, return it, and whether its verdict differs from the last one.

        Raise DriftError when a complete window cannot be compared; the next window has begun.
        """
        now, now_monotonic = self._clock(), self._monotonic()
        if not self._images:
            self._started, self._started_monotonic = now, now_monotonic
        self._images += observations
        timed_out = self._seconds is not None and now_monotonic - self._started_monotonic >= self._seconds
        if len(self._images) < (MIN_IMAGES if timed_out else self._size):
            return None
        images, self._images = self._images, []
        sample = build_sample(images, task_type if self.sample.task_type else "", "the window")
        columns, known = ((tuple(one.features), one.embeddings.shape[1]) for one in (sample, self.sample))
        neighbourhood = self._neighbourhood if columns == known else None
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


class DriftMetrics:
    """The Prometheus metrics of drift monitoring."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        self.detected = gauge("charioteer_drift_detected", "1 when the last window has drifted, else 0.", ["model"])
        p_value = "P-value of each test of the last window, corrected for the other tests."
        self.p_value = gauge("charioteer_drift_p", p_value, ["model", "test"])
        self.similarity = gauge(
            "charioteer_drift_similarity", "Mean similarity to the baseline of the last window's images.", ["model"]
        )
        of_baseline = "Mean similarity of the baseline's own images to one another."
        self.baseline_similarity = gauge("charioteer_drift_baseline_similarity", of_baseline, ["model"])
        self.windows = counter("charioteer_drift_windows", "Windows that were tested for drift.", ["model"])
        outcomes = "Images by outcome: measured, skipped by the rate limit, dropped because too many wait, or failed."
        self.images = counter("charioteer_drift_images", outcomes, ["model", "outcome"])

    def start(self, model: str) -> None:
        """Count from 0, so that the first window and the first dropped image are an increase."""
        self.windows.labels(model)
        for outcome in ("measured", "skipped", "dropped", "failed"):
            self.images.labels(model, outcome)

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
