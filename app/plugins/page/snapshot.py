"""Collect everything that the metrics page shows at one moment, as one JSON object."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from app import __version__
from app.core.engine.engine import Engine
from app.core.engine.models.registry import ModelState, Registration
from app.plugins.page.request_history import BATCH_SIZES, HistoryWindow, Readings, Resolution, quantiles
from app.plugins.page.trends import Trends

PERCENTILES = (50, 75, 90, 95, 99, 99.9, 99.99)

WINDOWS: Mapping[str, Resolution] = {
    "60s": Resolution.SECONDS,
    "60m": Resolution.MINUTES,
    "24h": Resolution.HOURS,
}
"""Names of the windows, and the resolution of their trends."""

_FRACTIONS = tuple(percentile / 100 for percentile in PERCENTILES)
# Quantiles in the latency chart.
_CHART_QUANTILES = (0.5, 0.9, 0.99)

_STATES_BEST_FIRST = (ModelState.READY, ModelState.LOADING, ModelState.UNAVAILABLE)

_MAX_REASON_CHARACTERS = 500
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")

Number = float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of one model, or of all requests, in one window.

    Latencies are those of successful requests in milliseconds; None without any.

    Attributes:
        name: name of the model; empty for all requests.
        state: best state of its versions; empty for all requests.
        requests: number of finished requests, including `failures`.
        rate: requests a second.
        percentiles: by `PERCENTILES`.
        batch: mean number of images or texts in a successful request.
        trend: requests a second in each interval, oldest first; None before the start of the server.
    """

    name: str
    state: str
    requests: int
    failures: int
    rate: float
    mean: Number
    percentiles: Sequence[Number]
    slowest: Number
    batch: Number
    trend: Sequence[Number]


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """Charts of one model, or of all requests. Trends are as in `Summary.trend`.

    Attributes:
        errors: failures in percent of the requests.
        p50: as p90 and p99, a latency percentile of each interval, in milliseconds.
        batch: mean number of images or texts in a successful request.
        batches: pairs of a range of sizes, such as 3-4, and the number of successful requests.
    """

    name: str
    errors: Sequence[Number]
    p50: Sequence[Number]
    p90: Sequence[Number]
    p99: Sequence[Number]
    batch: Sequence[Number]
    batches: Sequence[tuple[str, int]]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the metrics page shows.

    Attributes:
        age: seconds since its start, as those of `total_requests`.
        not_ready_reason: why the server reports not ready; empty if it is ready.
        window: a key of `WINDOWS`.
        interval: seconds in one interval of a trend.
        now: last readings; `in_flight` and `waiting` are current. CPU in cores, memory in bytes.
        process: trends of the readings, by name.
        models: metrics of every known model, by name.
    """

    version: str
    age: float
    total_requests: int
    not_ready_reason: str
    window: str
    interval: int
    now: Readings
    machine_memory: int
    process: Mapping[str, Sequence[Number]]
    percentiles: Sequence[float]
    total: Summary
    models: Sequence[Summary]
    detail: Detail


def take_snapshot(engine: Engine, trends: Trends, window: str) -> Snapshot:
    """Return the current metrics in `window`, a key of `WINDOWS`, with the charts of all requests."""
    engine.batched_observers.flush()
    resolution = WINDOWS[window]
    total = trends.total(resolution)
    versions: dict[str, list[Registration]] = {}
    for registration in engine.registry.registrations:
        versions.setdefault(registration.source.name, []).append(registration)
    gauges = trends.gauges(resolution)
    now = msgspec.structs.replace(trends.readings, in_flight=engine.in_flight, waiting=engine.waiting)
    return Snapshot(
        version=__version__,
        age=round(trends.age, 1),
        total_requests=trends.requests,
        not_ready_reason=engine.not_ready_reason[:_MAX_REASON_CHARACTERS],
        window=window,
        interval=resolution.interval,
        now=now,
        machine_memory=machine_memory(),
        process={name: _numbers(values) for name, values in gauges.items()},
        percentiles=PERCENTILES,
        total=_summary("", (), total),
        models=[
            _summary(name, registrations, trends.for_model(name, resolution))
            for name, registrations in sorted(versions.items())
        ],
        detail=_detail("", total),
    )


def with_model_detail(trends: Trends, snapshot: Snapshot, model: str) -> Snapshot:
    """Return `snapshot` with the charts of one model; unchanged if the model does not exist."""
    if not any(summary.name == model for summary in snapshot.models):
        return snapshot
    window = trends.for_model(model, WINDOWS[snapshot.window])
    return msgspec.structs.replace(snapshot, detail=_detail(model, window))


def machine_memory(limit_file: Path = _MEMORY_LIMIT) -> int:
    """Return the bytes of RAM of the machine, or the limit of the control group (cgroup v2, memory.max)."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(total, int(limit_file.read_text()))
    except (OSError, ValueError):
        return total


def _summary(name: str, versions: Sequence[Registration], window: HistoryWindow) -> Summary:
    requests, failures = int(window.requests.sum()), int(window.failures.sum())
    successes = requests - failures
    slowest = float(window.slowest.max())
    states = [registration.state for registration in versions]
    return Summary(
        name=name,
        state=next((state for state in _STATES_BEST_FIRST if state in states), ""),
        requests=requests,
        failures=failures,
        rate=_number(requests / max(int(window.covered.sum()), 1)) or 0.0,
        mean=_number(window.latency.sum() / successes / 1e6) if successes else None,
        percentiles=_numbers(np.minimum(quantiles(window.latencies.sum(axis=0), _FRACTIONS), slowest) / 1e6),
        slowest=_number(slowest / 1e6) if successes else None,
        batch=_number(window.items.sum() / successes) if successes else None,
        trend=_numbers(ratio(window.requests, window.covered)),
    )


def _detail(name: str, window: HistoryWindow) -> Detail:
    latency_quantiles = np.minimum(quantiles(window.latencies, _CHART_QUANTILES), window.slowest[:, None]) / 1e6
    batches = [(size, int(count)) for size, count in zip(BATCH_SIZES, window.batches.sum(axis=0), strict=True)]
    return Detail(
        name=name,
        errors=_numbers(ratio(100 * window.failures, window.requests)),
        p50=_numbers(latency_quantiles[:, 0]),
        p90=_numbers(latency_quantiles[:, 1]),
        p99=_numbers(latency_quantiles[:, 2]),
        batch=_numbers(ratio(window.items, window.requests - window.failures)),
        batches=[(size, count) for size, count in batches if count],
    )


def ratio(numerator: npt.NDArray[np.int64], denominator: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the quotient of each interval; NaN where the denominator is 0."""
    return numerator / np.where(denominator > 0, denominator, np.nan)


def _numbers(values: npt.NDArray[np.float64]) -> Sequence[Number]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> Number:
    """Round to five significant digits, which is enough for charts and keeps the object small; None for NaN."""
    return None if value != value else float(f"{value:.5g}")
