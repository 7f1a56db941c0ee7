"""The metrics of GRPS: a page, and the JSON that its tools poll, ``/grps/v1/monitor/series?name=``.

The GRPS server has the same format (grps_framework/monitor). A trend is 174 points, of 30 days, 24 hours, 60 minutes
and 60 seconds, oldest first. A distribution covers the last second: its places 10 to 99 are percentiles, 100 means
99.9 % and 101 means 99.99 %.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from litestar import Response, get
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.models.memory import resident_bytes
from app.core.engine.request_context import RequestContext
from app.core.hooks import Host, Parts
from app.core.observers.metrics import ModelUsage, usage_of_models
from app.core.protocols.protocol import HttpRequest
from app.core.server.auth.http_access import requires

# The seconds of an interval, and the number of intervals.
_RESOLUTIONS = ((86400, 30), (3600, 24), (60, 60), (1, 60))
# The columns of a ring: latencies in nanoseconds, CPU in core seconds, memory in bytes times seconds.
_REQUESTS, _FAILURES, _LATENCY, _SLOWEST, _CPU, _MEMORY, _SECONDS = range(7)
_CDF = "*latency_cdf(ms)"
_PLACES = (*range(10, 100, 10), *range(91, 102))
_FRACTIONS = [{100: 0.999, 101: 0.9999}.get(place, place / 100) for place in _PLACES]
_POLICY = "default-src 'none'; frame-ancestors 'none'"
_HEADERS = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache", "Vary": "Accept"}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Charioteer</title><h1>Requests</h1>
<p>Finished requests since the start of the server. <a href="{root}metrics">/metrics</a> has all figures.</p>
<table border="1" cellpadding="4"><thead><tr><th>Model<th>Requests<th>Errors<th>Mean latency</thead>
<tbody>{rows}</tbody></table></html>"""
_ROW = "<tr><th>{}<td>{}<td>{}<td>{:.2f} ms\n"
Row = NDArray[np.float64]
_TRENDS: Mapping[str, Callable[[Row], Row]] = {
    "*qps": lambda rows: rows[:, _REQUESTS] / rows[:, _SECONDS],
    "*fail_rate(%)": lambda rows: 100 * rows[:, _FAILURES] / rows[:, _REQUESTS],
    "*latency_avg(ms)": lambda rows: rows[:, _LATENCY] / (rows[:, _REQUESTS] - rows[:, _FAILURES]) / 1e6,
    "*latency_max(ms)": lambda rows: rows[:, _SLOWEST] / 1e6,
    "*cpu_usage(%)": lambda rows: 100 * rows[:, _CPU] / rows[:, _SECONDS],
    "*mem_usage(%)": lambda rows: 100 * rows[:, _MEMORY] / rows[:, _SECONDS] / _machine_memory(),
}


class Monitor:
    """Count requests in rings of seconds, minutes, hours and days. `metrics` has the use of each model."""

    def __init__(self, engine: Engine, metrics: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self.engine, self._metrics, self._clock, self._started = engine, metrics, clock, clock()
        self._lock = threading.Lock()
        self._rings = [np.zeros((size, _SECONDS + 1)) for _, size in _RESOLUTIONS]
        self._second: int = 0
        self._cpu = time.process_time()
        self._current, self._latencies, self._last_latencies = np.zeros(4), list[int](), list[int]()

    def observe(self, context: RequestContext, /) -> None:
        # Explanations take hundreds of times as long.
        if context.explanation:
            return
        failed, count, latency = context.outcome is not None, context.count, context.total
        with self._lock:
            self._advance()
            self._current[: _LATENCY + 1] += (count, count * failed, 0 if failed else count * latency)
            self._current[_SLOWEST] = max(self._current[_SLOWEST], 0 if failed else latency)
            self._latencies += [] if failed else [latency] * count

    def series(self, name: str) -> dict[str, Any] | None:
        """Return the label and the points of a metric over all models; None if there is none of this name."""
        with self._lock, np.errstate(divide="ignore", invalid="ignore"):
            self._advance()
            if name == _CDF:
                latencies = np.array(self._last_latencies or [np.nan])
                values = np.quantile(latencies, _FRACTIONS, method="inverted_cdf") / 1e6
                return {"label": "cdf", "data": _points(_PLACES, values)}
            if (trend := _TRENDS.get(name)) is None:
                return None
            last = max(self._second - 1, 0)
            rolled = (
                np.roll(ring, -1 - last // seconds % size, axis=0)
                for ring, (seconds, size) in zip(self._rings, _RESOLUTIONS, strict=True)
            )
            return {"label": "trend", "data": _points(range(174), np.concatenate([*map(trend, rolled)]))}

    def page(self, root: str) -> Response[str]:
        """Return a table of requests, errors and latency of each model; `root` is the relative path to ``/``."""
        self.engine.batched_observers.flush()
        usage = usage_of_models(self._metrics)
        models = {name: usage.get(name, ModelUsage()) for name in self.engine.registry.names}
        rows = "".join(
            _ROW.format(escape(name), model.requests, model.errors, model.latency) for name, model in models.items()
        )
        return Response(_PAGE.format(root=root, rows=rows), media_type="text/html", headers=_HEADERS)

    @property
    def parts(self) -> Parts:
        """Return what the monitor adds to a server."""

        @get("/grps/v1/monitor/metrics", sync_to_thread=False, opt=requires("read"))
        def show_page() -> Response[str]:
            return self.page("../../../")

        @get("/grps/v1/monitor/series", sync_to_thread=False, opt=requires("read"))
        def show_series(request: HttpRequest) -> Response[Any]:
            self.engine.batched_observers.flush()
            if (series := self.series(request.query_params.get("name", ""))) is None:
                return Response("key not found", media_type="text/html")
            return Response(msgspec.json.encode(series), media_type="application/json;charset=utf-8")

        return Parts(batched_observers=(self,), handlers=(show_page, show_series), home=lambda _: self.page(""))

    def _advance(self) -> None:
        """Write the finished second into the rings, and the resources since then, if another second has begun."""
        second = int(self._clock() - self._started)
        if second == self._second:
            return
        first, last, cpu = self._second, second - 1, time.process_time()
        usage = ((cpu - self._cpu) / (second - first), float(resident_bytes()), 1.0)
        for ring, (seconds, size) in zip(self._rings, _RESOLUTIONS, strict=True):
            start, end = first // seconds, last // seconds
            for interval in range(max(start, end - size + 1), end + 1):
                row, begin = ring[interval % size], max(first, interval * seconds)
                if begin == interval * seconds:
                    row[:] = 0
                row[_CPU:] += np.multiply(usage, min(last + 1, (interval + 1) * seconds) - begin)
            if end - start < size:
                row = ring[start % size]
                row[:_SLOWEST] += self._current[:_SLOWEST]
                row[_SLOWEST] = max(row[_SLOWEST], self._current[_SLOWEST])
        self._last_latencies = self._latencies if last == first else []
        self._second, self._cpu, self._latencies = second, cpu, []
        self._current[:] = 0


def start(host: Host) -> Parts:
    """Return the observer of the metrics, and the routes that show them."""
    return Monitor(host.engine, host.metrics).parts


def _points(places: Any, values: Row) -> list[tuple[int, float]]:
    return list(zip(places, np.nan_to_num(values, posinf=0).round(2).tolist(), strict=True))


def _machine_memory() -> int:
    """Return the bytes of RAM of the machine, or the limit of the control group (cgroup v2, memory.max)."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total
