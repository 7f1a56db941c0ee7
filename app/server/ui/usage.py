"""How much a model is used, from the trends of its requests."""

from collections.abc import Sequence

import msgspec
import numpy as np

from app.observers.histogram import quantiles
from app.observers.request_history import HistoryWindow, Resolution
from app.observers.trends import Trends

__all__ = ("ModelUsage", "model_usage")

_FINEST_FIRST: Sequence[Resolution] = (Resolution.SECONDS, Resolution.MINUTES, Resolution.HOURS, Resolution.DAYS)


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The use of one model, all versions together.

    Attributes:
        requests: finished requests of the last 30 days, since the start of the server.
        latency: median latency of successful requests of the last 24 hours in milliseconds; None without any.
        last_used: seconds since the last request ended, as exact as the trends; None without requests.
    """

    requests: int = 0
    latency: float | None = None
    last_used: int | None = None


def model_usage(trends: Trends, name: str) -> ModelUsage:
    """Return the use of the model called `name`."""
    days, hours = trends.for_model(name, Resolution.DAYS), trends.for_model(name, Resolution.HOURS)
    requests = int(days.requests.sum())
    if not requests:
        return ModelUsage()
    latencies = hours.latencies.sum(axis=0)
    median = float(quantiles(latencies, (0.5,))[0]) / 1e6 if latencies.any() else None
    ages = (_age(trends.for_model(name, resolution), resolution) for resolution in _FINEST_FIRST)
    return ModelUsage(requests=requests, latency=median, last_used=next(age for age in ages if age is not None))


def _age(window: HistoryWindow, resolution: Resolution) -> int | None:
    """Return the seconds since the last interval with requests, None without any."""
    (used,) = np.nonzero(window.requests)
    return (resolution.size - 1 - int(used[-1])) * resolution.interval if used.size else None
