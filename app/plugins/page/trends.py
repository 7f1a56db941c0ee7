"""Request trends of the server and each model over the last minute, hour, day and month."""

import threading
import time
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from app.core.engine.request_context import RequestContext
from app.plugins.page.request_history import Gauges, HistoryWindow, Readings, RequestHistory, Resolution

MAX_MODELS = 64
"""Maximum number of models with their own history; requests to others count in the total only."""


class Trends:
    """An observer that keeps a history of requests.

    The history of a model starts with its first request. Clients may invent model names: unknown names count in the
    total only. When there are too many histories, those of removed models are dropped.

    Args:
        has_model: return whether a model has the name.

    Attributes:
        requests: number of finished requests since the start.
        readings: the last readings.
    """

    def __init__(self, has_model: Callable[[str], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._has_model = has_model
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._total = RequestHistory()
        self._no_requests = RequestHistory()
        self.requests = 0
        self._models: dict[str, RequestHistory] = {}
        self._gauges = Gauges()
        self.readings = Readings(in_flight=0, waiting=0, cpu=0, memory=0)

    @property
    def age(self) -> float:
        return self._clock() - self._started

    def observe(self, context: RequestContext, /) -> None:
        # Explanations take hundreds of times as long.
        if context.explanation:
            return
        failed, nanoseconds, items = context.outcome is not None, context.total, context.batch_size
        with self._lock:
            # Read the clock inside the lock, so that seconds never decrease.
            second = int(self._clock() - self._started)
            self.requests += context.count
            history = self._models.get(context.model_name) or self._new_history(context.model_name)
            for _ in range(context.count):
                self._total.add(second, failed, nanoseconds, items)
                if history is not None:
                    history.add(second, failed, nanoseconds, items)

    def add_readings(self, readings: Readings) -> None:
        """Store new readings. Call this once a second."""
        with self._lock:
            self.readings = readings
            self._gauges.add(int(self.age), readings)

    def total(self, resolution: Resolution) -> HistoryWindow:
        """Return the window of all requests, including those without a model."""
        with self._lock:
            return self._total.window(resolution, int(self.age))

    def for_model(self, name: str, resolution: Resolution) -> HistoryWindow:
        """Return the window of one model, all versions together."""
        with self._lock:
            return self._models.get(name, self._no_requests).window(resolution, int(self.age))

    def gauges(self, resolution: Resolution) -> Mapping[str, npt.NDArray[np.float64]]:
        """Return, by field of `Readings`, the mean of each interval; NaN without readings."""
        with self._lock:
            return self._gauges.window(resolution, int(self.age))

    def _new_history(self, name: str) -> RequestHistory | None:
        if not name or not self._has_model(name):
            return None
        if len(self._models) >= MAX_MODELS:
            self._models = {model: history for model, history in self._models.items() if self._has_model(model)}
            if len(self._models) >= MAX_MODELS:
                return None
        history = self._models[name] = RequestHistory()
        return history
