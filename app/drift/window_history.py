"""Keep the latest evaluated windows of each model in memory."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from app.drift.monitor import DriftWindow

__all__ = ("MAX_WINDOWS", "WindowHistory", "WindowResult")

MAX_WINDOWS = 200


class WindowResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one window.

    Attributes:
        ended: seconds since 1970.
        images: number of images.
        drifted: the verdict.
        alpha: the level: a test reports drift if its p-value is at most this.
        similarity: mean similarity of the images to the baseline, 0..1; None if it is undefined.
        baseline_similarity: mean similarity of the baseline's images to one another.
        tests: the p-value of each test by name, corrected for the other tests.
    """

    ended: float
    images: int
    drifted: bool
    alpha: float
    similarity: float | None
    baseline_similarity: float | None
    tests: Mapping[str, float]


class WindowHistory:
    """The latest windows of each model.

    Args:
        max_windows: maximum number of windows for each model.
    """

    def __init__(self, max_windows: int = MAX_WINDOWS) -> None:
        self._max_windows = max_windows
        self._lock = threading.Lock()
        self._windows: dict[str, deque[WindowResult]] = {}

    def add(self, window: "DriftWindow") -> None:
        """Add a complete window."""
        comparison = window.comparison
        result = WindowResult(
            ended=window.ended,
            images=comparison.production,
            drifted=comparison.drifted,
            alpha=comparison.alpha,
            similarity=_number(comparison.production_similarity),
            baseline_similarity=_number(comparison.baseline_similarity),
            tests={test.name: test.adjusted for test in comparison.tests},
        )
        with self._lock:
            self._windows.setdefault(window.model, deque(maxlen=self._max_windows)).append(result)

    def windows(self) -> Mapping[str, Sequence[WindowResult]]:
        """Return the windows of each model by name, oldest first."""
        with self._lock:
            return {model: list(windows) for model, windows in sorted(self._windows.items())}


def _number(value: float) -> float | None:
    return value if value == value else None
