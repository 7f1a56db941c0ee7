"""What the server and each of its models did in the last minute, hour, day and month."""

import threading
import time
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from app.engine.events import InferenceEvent
from app.engine.history import Gauges, History, Readings, Resolution, Window

__all__ = ("MOST_MODELS", "Trends")

MOST_MODELS = 64
"""So many models have a history of their own; requests to others count in the total alone."""


class Trends:
    """An observer that remembers when.

    A model has a history from its first request on. The names that requests give are the senders': one that is no
    model's counts in the total alone. When there are too many models, those that are gone make room.

    Args:
        known: whether a model has the name.
        clock: seconds, from any beginning.
    """

    def __init__(self, known: Callable[[str], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._known = known
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._total = History()
        self._idle = History()
        self._requests = 0
        self._models: dict[str, History] = {}
        self._gauges = Gauges()
        self._readings = Readings(in_flight=0, waiting=0, cpu=0, memory=0)

    @property
    def age(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    @property
    def requests(self) -> int:
        """Requests that came to their end since the start."""
        return self._requests

    @property
    def readings(self) -> Readings:
        """The last that were taken."""
        return self._readings

    def observe(self, event: InferenceEvent, /) -> None:
        failed, nanoseconds, items = event.outcome is not None, event.total, event.batch_size
        with self._lock:
            # Inside the lock, seconds never run backwards.
            second = int(self._clock() - self._started)
            self._requests += 1
            self._total.add(second, failed, nanoseconds, items)
            history = self._models.get(event.model_name) or self._begun(event.model_name)
            if history is not None:
                history.add(second, failed, nanoseconds, items)

    def read(self, readings: Readings) -> None:
        """Remember what was measured just now; to be called once a second."""
        with self._lock:
            self._readings = readings
            self._gauges.add(int(self.age), readings)

    def total(self, resolution: Resolution) -> Window:
        """All requests, those included that named no model."""
        with self._lock:
            return self._total.window(resolution, int(self.age))

    def of(self, name: str, resolution: Resolution) -> Window:
        """Requests to one model, whatever version of it."""
        with self._lock:
            return self._models.get(name, self._idle).window(resolution, int(self.age))

    def gauges(self, resolution: Resolution) -> Mapping[str, npt.NDArray[np.float64]]:
        """By field of `Readings`, the mean in each grain; NaN where nothing was read."""
        with self._lock:
            return self._gauges.window(resolution, int(self.age))

    def _begun(self, name: str) -> History | None:
        if not name or not self._known(name):
            return None
        if len(self._models) >= MOST_MODELS:
            self._models = {each: history for each, history in self._models.items() if self._known(each)}
            if len(self._models) >= MOST_MODELS:
                return None
        history = self._models[name] = History()
        return history
