"""The images of a server, window by window, held against a baseline."""

import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from app.drift.baseline import Baseline
from app.drift.comparison import ALPHA, compared
from app.drift.embedding import Embedder
from app.drift.measuring import Seen, observed
from app.drift.result import Comparison
from app.drift.sample import LEAST_IMAGES, Observation, Sample, sample_of
from app.drift.similarity import Neighbourhood

__all__ = ("Monitor", "Watched", "Window")


class Watched:
    """A model that is watched: its baseline, and what measures images as the baseline was measured.

    Args:
        model: its name.
        baseline: of it.
        embedder: that of the baseline, None without embeddings.
    """

    def __init__(self, model: str, baseline: Baseline, embedder: Embedder | None) -> None:
        self.model = model
        self.sample = baseline.sample
        self._embedder = embedder
        self.neighbourhood = Neighbourhood(self.sample.numbers, self.sample.embeddings)

    def measured(self, seen: Sequence[Seen], task_type: str) -> list[Observation]:
        """Measure images.

        Raises:
            InferenceError: when the embedder fails.
        """
        return list(observed(seen, task_type if self.sample.task_type else "", self._embedder))

    def similarities(self, observations: Sequence[Observation]) -> Sequence[float | None]:
        """0..1 how much each image is like the baseline's; None where something of it could not be measured."""
        told: list[float | None] = []
        for each in observations:
            parts = [part for part in (each.image, each.findings) if part is not None]
            numbers = np.concatenate(parts) if parts else np.zeros(0)
            width = self.sample.embeddings.shape[1]
            embedding = np.zeros(0, np.float32) if each.embedding is None else each.embedding
            if len(numbers) != len(self.sample.features) or len(embedding) != width:
                told.append(None)
                continue
            distances = self.neighbourhood.distances_of(numbers[None], embedding[None])
            similarity = float(self.neighbourhood.similarity(distances)[0])
            told.append(similarity if np.isfinite(similarity) else None)
        return told


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window that is over.

    Attributes:
        model: whose.
        started: seconds since 1970, when its first image came.
        ended: when its last did.
        comparison: of its images with the baseline.
        changed: whether the verdict is another one than that of the window before; of the first, whether it is drift.
    """

    model: str
    started: float
    ended: float
    comparison: Comparison
    changed: bool


class Monitor:
    """Collects the images of one model and judges each window when it is over. Called from one thread.

    Args:
        watched: the model.
        size: images of a window.
        seconds: a window with images enough to be judged is over after so long too; not when None.
        clock: seconds since 1970.
        steady: seconds from any beginning, by a clock that nobody sets.
    """

    def __init__(
        self,
        watched: Watched,
        size: int,
        seconds: float | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watched = watched
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._steady = steady
        self._images: list[Observation] = []
        self._started = self._begun = 0.0
        self._drifted = False

    def add(self, observations: Sequence[Observation], task_type: str) -> Window | None:
        """Take images in; the window that they end, if they do.

        Raises:
            DriftError: when a window that is over cannot be compared; the next one has begun.
        """
        now = self._clock()
        if not self._images:
            self._started, self._begun = now, self._steady()
        self._images += observations
        if not self._is_over:
            return None
        images, self._images = self._images, []
        sample = sample_of(images, task_type if self.watched.sample.task_type else "", "the window")
        shared = _columns(sample) == _columns(self.watched.sample)
        near = self.watched.neighbourhood if shared else None
        found = compared(self.watched.sample, sample, alpha=ALPHA, neighbourhood=near)
        changed, self._drifted = found.drifted is not self._drifted, found.drifted
        return Window(
            model=self.watched.model, started=self._started, ended=now, comparison=found, changed=changed
        )  # fmt: skip

    def follow(self, former: "Monitor") -> None:
        """Take the place of another, whose last verdict is the one that the next may differ from."""
        self._drifted = former._drifted

    @property
    def _is_over(self) -> bool:
        if len(self._images) >= self._size:
            return True
        late = self._seconds is not None and self._steady() - self._begun >= self._seconds
        return late and len(self._images) >= LEAST_IMAGES


def _columns(sample: Sample) -> tuple[Sequence[str], int]:
    return tuple(sample.features), sample.embeddings.shape[1]
