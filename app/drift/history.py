"""The windows that were judged last, for whoever looks later: a few hundred of each model, in memory."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from app.drift.monitor import Window

__all__ = ("MOST_WINDOWS", "History", "Judged")

MOST_WINDOWS = 200


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one window.

    Attributes:
        ended: seconds since 1970.
        images: so many were in it.
        drifted: the verdict.
        alpha: its level: a test says so when its p-value is no greater.
        similarity: 0..1, the mean of its images to the baseline; None when it could not be told.
        baseline_similarity: the mean of the baseline's own images to one another.
        tests: the p-value of each by its name, corrected for the others.
    """

    ended: float
    images: int
    drifted: bool
    alpha: float
    similarity: float | None
    baseline_similarity: float | None
    tests: Mapping[str, float]


class History:
    """The last windows of each model.

    Args:
        most: so many windows of each.
    """

    def __init__(self, most: int = MOST_WINDOWS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._windows: dict[str, deque[Judged]] = {}

    def add(self, window: "Window") -> None:
        """A window is over."""
        found = window.comparison
        judged = Judged(
            ended=window.ended,
            images=found.production,
            drifted=found.drifted,
            alpha=found.alpha,
            similarity=_number(found.production_similarity),
            baseline_similarity=_number(found.baseline_similarity),
            tests={each.name: each.adjusted for each in found.tests},
        )
        with self._lock:
            self._windows.setdefault(window.model, deque(maxlen=self._most)).append(judged)

    def windows(self) -> Mapping[str, Sequence[Judged]]:
        """Of each model that had any, by name, the oldest first."""
        with self._lock:
            return {model: list(windows) for model, windows in sorted(self._windows.items())}


def _number(value: float) -> float | None:
    return value if value == value else None
