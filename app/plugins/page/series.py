"""Return metrics in the JSON that the page of GRPS polls: ``/grps/v1/monitor/series?name=``.

The format is that of the GRPS server (NetEase-Media/grps, server/py_server/grps_framework/monitor). A trend is 174
points, of 30 days, 24 hours, 60 minutes and 60 seconds, oldest first. A distribution covers the last second: its
places 10 to 99 are percentiles, 100 means 99.9 % and 101 means 99.99 %. Values have two decimals.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from app.plugins.page.request_history import HistoryWindow, Resolution, quantiles
from app.plugins.page.snapshot import machine_memory, ratio
from app.plugins.page.trends import Trends

_CDF = "*latency_cdf(ms)"
_POSITIONS = (*range(10, 100, 10), *range(91, 102))
_FRACTIONS = tuple({100: 0.999, 101: 0.9999}.get(position, position / 100) for position in _POSITIONS)
_COARSE_FIRST = (Resolution.DAYS, Resolution.HOURS, Resolution.MINUTES, Resolution.SECONDS)

Values = npt.NDArray[np.float64]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric: `label` is ``trend`` or ``cdf``, `data` its points."""

    label: str
    data: Sequence[tuple[int, float]]


_REQUEST_METRICS: Mapping[str, Callable[[HistoryWindow], Values]] = {
    "*qps": lambda window: ratio(window.requests, window.covered),
    "*fail_rate(%)": lambda window: ratio(100 * window.failures, window.requests),
    "*latency_avg(ms)": lambda window: ratio(window.latency, window.requests - window.failures) / 1e6,
    "*latency_max(ms)": lambda window: window.slowest / 1e6,
}
_PROCESS_METRICS: Mapping[str, Callable[[Mapping[str, Values]], Values]] = {
    "*cpu_usage(%)": lambda gauges: 100 * gauges["cpu"],
    "*mem_usage(%)": lambda gauges: 100 * gauges["memory"] / machine_memory(),
}

SERIES = (*_REQUEST_METRICS, _CDF, *_PROCESS_METRICS)
"""Names of the metrics."""


def read_series(trends: Trends, name: str) -> Series | None:
    """Return the metric called `name` over all models; None if it is not in `SERIES`."""
    if name == _CDF:
        latencies = trends.total(Resolution.SECONDS).latencies[-1]
        return Series(label="cdf", data=_points(_POSITIONS, quantiles(latencies, _FRACTIONS) / 1e6))
    if name in _REQUEST_METRICS:
        values = [_REQUEST_METRICS[name](trends.total(resolution)) for resolution in _COARSE_FIRST]
    elif name in _PROCESS_METRICS:
        values = [_PROCESS_METRICS[name](trends.gauges(resolution)) for resolution in _COARSE_FIRST]
    else:
        return None
    joined = np.concatenate(values)
    return Series(label="trend", data=_points(range(len(joined)), joined))


def _points(positions: Sequence[int], values: Values) -> Sequence[tuple[int, float]]:
    rounded = np.nan_to_num(values).round(2).tolist()
    return list(zip(positions, rounded, strict=True))
