"""The metrics that GRPS shows, in the JSON that its page polls: ``/grps/v1/monitor/series?name=``.

As its server does it (NetEase-Media/grps, server/py_server/grps_framework/monitor): a trend is 174 points, of 30 days,
24 hours, 60 minutes and 60 seconds, the oldest first; a distribution is of the last second, its places 10 to 99 are
percentiles, 100 means 99.9 % and 101 means 99.99 %. Values have two decimals.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from app.engine.histogram import quantiles
from app.engine.history import Resolution, Window
from app.engine.process_usage import machine_memory
from app.engine.trends import Trends

__all__ = ("SERIES", "Series", "read_series")

_CDF = "*latency_cdf(ms)"
_PLACES = (*range(10, 100, 10), *range(91, 102))
_FRACTIONS = tuple({100: 0.999, 101: 0.9999}.get(place, place / 100) for place in _PLACES)
_COARSE_FIRST = (Resolution.DAYS, Resolution.HOURS, Resolution.MINUTES, Resolution.SECONDS)

Values = npt.NDArray[np.float64]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric: `label` is ``trend`` or ``cdf``, `data` its points."""

    label: str
    data: Sequence[tuple[int, float]]


def _per_request(above: npt.NDArray[np.int64], below: npt.NDArray[np.int64]) -> Values:
    return above / np.maximum(below, 1)


_OF_REQUESTS: Mapping[str, Callable[[Window], Values]] = {
    "*qps": lambda window: _per_request(window.requests, window.covered),
    "*fail_rate(%)": lambda window: _per_request(100 * window.failures, window.requests),
    "*latency_avg(ms)": lambda window: _per_request(window.latency, window.requests - window.failures) / 1e6,
    "*latency_max(ms)": lambda window: window.slowest / 1e6,
}
_OF_PROCESS: Mapping[str, Callable[[Mapping[str, Values]], Values]] = {
    "*cpu_usage(%)": lambda gauges: 100 * gauges["cpu"],
    "*mem_usage(%)": lambda gauges: 100 * gauges["memory"] / machine_memory(),
}

SERIES = (*_OF_REQUESTS, _CDF, *_OF_PROCESS)
"""Their names."""


def read_series(trends: Trends, name: str) -> Series | None:
    """The metric called `name`, over all models; None for a name that is not in `SERIES`."""
    if name == _CDF:
        latencies = trends.total(Resolution.SECONDS).latencies[-1]
        return Series(label="cdf", data=_points(_PLACES, quantiles(latencies, _FRACTIONS) / 1e6))
    if name in _OF_REQUESTS:
        values = [_OF_REQUESTS[name](trends.total(each)) for each in _COARSE_FIRST]
    elif name in _OF_PROCESS:
        values = [_OF_PROCESS[name](trends.gauges(each)) for each in _COARSE_FIRST]
    else:
        return None
    joined = np.concatenate(values)
    return Series(label="trend", data=_points(range(len(joined)), joined))


def _points(places: Sequence[int], values: Values) -> Sequence[tuple[int, float]]:
    rounded = np.nan_to_num(values).round(2).tolist()
    return list(zip(places, rounded, strict=True))
