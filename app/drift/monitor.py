"""Compare windows of a server's images with a baseline."""

import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from app.drift.baseline import Baseline
from app.drift.comparison import ALPHA, compare
from app.drift.embedding import Embedder
from app.drift.measurement import DriftInput, measure_images
from app.drift.result import DriftComparison
from app.drift.sample import MIN_IMAGES, Observation, Sample, build_sample
from app.drift.similarity import Neighbourhood

__all__ = ("DriftWindow", "Monitor", "MonitoredModel")


class MonitoredModel:
    """A monitored model with its baseline. It measures images in the same way as the baseline.

    Args:
        model: the name of the model.
        baseline: the baseline of the model.
        embedder: the embedder of the baseline, None without embeddings.
    """

    def __init__(self, model: str, baseline: Baseline, embedder: Embedder | None) -> None:
        self.model = model
        self.sample = baseline.sample
        self._embedder = embedder
        self.neighbourhood = Neighbourhood(self.sample.numbers, self.sample.embeddings)

    def measure(self, inputs: Sequence[DriftInput], task_type: str) -> list[Observation]:
        """Measure images.

        Raises:
            InferenceError: when the embedder fails.
        """
        return list(measure_images(inputs, task_type if self.sample.task_type else "", self._embedder))

    def similarities(self, observations: Sequence[Observation]) -> Sequence[float | None]:
        """Return the similarity of each image to the baseline, 0..1; None for an incomplete measurement."""
        similarities: list[float | None] = []
        for observation in observations:
            arrays = [array for array in (observation.image, observation.findings) if array is not None]
            numbers = np.concatenate(arrays) if arrays else np.zeros(0)
            width = self.sample.embeddings.shape[1]
            embedding = np.zeros(0, np.float32) if observation.embedding is None else observation.embedding
            if len(numbers) != len(self.sample.features) or len(embedding) != width:
                similarities.append(None)
                continue
            distances = self.neighbourhood.distances_of(numbers[None], embedding[None])
            similarity = float(self.neighbourhood.similarity(distances)[0])
            similarities.append(similarity if np.isfinite(similarity) else None)
        return similarities


class DriftWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A complete window.

    Attributes:
        model: the name of the model.
        started: arrival of its first image, in seconds since 1970.
        ended: arrival of its last image, in seconds since 1970.
        comparison: the comparison of its images with the baseline.
        changed: whether the verdict differs from the previous window; for the first window, whether it is drift.
    """

    model: str
    started: float
    ended: float
    comparison: DriftComparison
    changed: bool


class Monitor:
    """Collect the images of one model, and evaluate each complete window. Use it from one thread only.

    Args:
        monitored: the model.
        size: number of images in a window.
        seconds: maximum duration of a window with enough images to evaluate; None for no maximum.
        clock: seconds since 1970.
        monotonic: a monotonic clock in seconds.
    """

    def __init__(
        self,
        monitored: MonitoredModel,
        size: int,
        seconds: float | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.monitored = monitored
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._monotonic = monotonic
        self._images: list[Observation] = []
        self._started = self._started_monotonic = 0.0
        self._drifted = False

    def add(self, observations: Sequence[Observation], task_type: str) -> DriftWindow | None:
        """Add images, and return the window if they complete it.

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
        sample = build_sample(images, task_type if self.monitored.sample.task_type else "", "the window")
        shared = _columns(sample) == _columns(self.monitored.sample)
        neighbourhood = self.monitored.neighbourhood if shared else None
        comparison = compare(self.monitored.sample, sample, alpha=ALPHA, neighbourhood=neighbourhood)
        changed, self._drifted = comparison.drifted is not self._drifted, comparison.drifted
        return DriftWindow(
            model=self.monitored.model, started=self._started, ended=now, comparison=comparison, changed=changed
        )  # fmt: skip

    def continue_from(self, previous: "Monitor") -> None:
        """Replace another monitor, and continue from its last verdict."""
        self._drifted = previous._drifted

    @property
    def _is_complete(self) -> bool:
        if len(self._images) >= self._size:
            return True
        timed_out = self._seconds is not None and self._monotonic() - self._started_monotonic >= self._seconds
        return timed_out and len(self._images) >= MIN_IMAGES


def _columns(sample: Sample) -> tuple[Sequence[str], int]:
    return tuple(sample.features), sample.embeddings.shape[1]
