"""Everything that the metrics page shows at a moment, as one JSON object."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from app import __version__
from app.engine.engine import Engine
from app.engine.histogram import cumulative, quantiles
from app.engine.history import BATCH_SIZES, Readings, Resolution, Window
from app.engine.process_usage import machine_memory
from app.engine.registry import ModelState, Registration

__all__ = ("PERCENTILES", "WINDOWS", "Detail", "Snapshot", "Summary", "look_at", "take_snapshot")

PERCENTILES = (50, 75, 90, 95, 99, 99.9, 99.99)

WINDOWS: Mapping[str, Resolution] = {
    "60s": Resolution.SECONDS,
    "60m": Resolution.MINUTES,
    "24h": Resolution.HOURS,
}
"""What a window is called, and the grain of its trends."""

_FRACTIONS = tuple(each / 100 for each in PERCENTILES)
# The lines of the chart of latencies: the median, 90 % and 99 %.
_CHARTED = (0.5, 0.9, 0.99)

_BEST_FIRST = (ModelState.READY, ModelState.LOADING, ModelState.UNAVAILABLE)

_LONGEST_REASON = 500

Number = float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One model, or all, in one window.

    Attributes:
        name: the model's, empty for all requests.
        state: whether it can answer: the best state of its versions, empty for all requests.
        task: the type of its task, empty while it is not loaded, and for all requests.
        requests: that came to their end.
        failures: those of them that were not answered.
        rate: requests a second.
        mean: milliseconds that the answered ones took, None when there were none.
        percentiles: of the same, by `PERCENTILES`.
        slowest: of the same.
        batch: images or texts in an answered one, the mean.
        trend: requests a second in each grain, the oldest first; None before the start of the server.
    """

    name: str
    state: str
    task: str
    requests: int
    failures: int
    rate: float
    mean: Number
    percentiles: Sequence[Number]
    slowest: Number
    batch: Number
    trend: Sequence[Number]


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """What is charted of one model, or of all. Trends are as `Summary.trend`.

    Attributes:
        name: the model's, empty for all requests.
        errors: failures in a hundred requests.
        mean: milliseconds.
        p50: and the following: milliseconds, percentiles of each grain.
        batch: images or texts in an answered request, the mean.
        batches: pairs of a group of sizes, such as 3-4, and answered requests.
        cdf: pairs of milliseconds and the share of answered requests that took no longer.
    """

    name: str
    errors: Sequence[Number]
    mean: Sequence[Number]
    p50: Sequence[Number]
    p90: Sequence[Number]
    p99: Sequence[Number]
    batch: Sequence[Number]
    batches: Sequence[tuple[str, int]]
    cdf: Sequence[tuple[Number, Number]]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows.

    Attributes:
        version: of the server.
        age: seconds since its start.
        ever: requests since its start.
        unready: why load balancers are told to send nothing, empty when they may send requests.
        window: a key of `WINDOWS`.
        interval: seconds that one grain of a trend lasts.
        now: what was measured last; `in_flight` and `waiting` at this moment. CPU in cores, memory in bytes.
        machine_memory: bytes.
        process: the same as trends, by name.
        percentiles: `PERCENTILES`.
        total: all requests.
        models: every model that is known, by name.
        detail: of the model that was asked for.
    """

    version: str
    age: float
    ever: int
    unready: str
    window: str
    interval: int
    now: Readings
    machine_memory: int
    process: Mapping[str, Sequence[Number]]
    percentiles: Sequence[float]
    total: Summary
    models: Sequence[Summary]
    detail: Detail


def take_snapshot(engine: Engine, window: str) -> Snapshot:
    """What is known now, with the details of all requests.

    Args:
        engine: whose requests.
        window: a key of `WINDOWS`.
    """
    trends, resolution = engine.trends, WINDOWS[window]
    total = trends.total(resolution)
    versions: dict[str, list[Registration]] = {}
    for each in engine.registry.registrations:
        versions.setdefault(each.source.name, []).append(each)
    gauges = trends.gauges(resolution)
    now = msgspec.structs.replace(trends.readings, in_flight=engine.in_flight, waiting=engine.waiting)
    return Snapshot(
        version=__version__,
        age=round(trends.age, 1),
        ever=trends.requests,
        unready=engine.unready[:_LONGEST_REASON],
        window=window,
        interval=resolution.interval,
        now=now,
        machine_memory=machine_memory(),
        process={name: _numbers(values) for name, values in gauges.items()},
        percentiles=PERCENTILES,
        total=_summary("", (), total),
        models=[_summary(name, found, trends.of(name, resolution)) for name, found in sorted(versions.items())],
        detail=_detail("", total),
    )


def look_at(engine: Engine, snapshot: Snapshot, model: str) -> Snapshot:
    """`snapshot` with the details of one model; as it is when there is no such model."""
    if not any(each.name == model for each in snapshot.models):
        return snapshot
    window = engine.trends.of(model, WINDOWS[snapshot.window])
    return msgspec.structs.replace(snapshot, detail=_detail(model, window))


def _summary(name: str, versions: Sequence[Registration], window: Window) -> Summary:
    requests, failures = int(window.requests.sum()), int(window.failures.sum())
    answered = requests - failures
    slowest = float(window.slowest.max())
    states = [each.state for each in versions]
    tasks = [each.servable.description.task_type for each in versions if each.servable is not None]
    return Summary(
        name=name,
        state=next((each for each in _BEST_FIRST if each in states), ""),
        task=tasks[0] if tasks else "",
        requests=requests,
        failures=failures,
        rate=_number(requests / max(int(window.covered.sum()), 1)) or 0.0,
        mean=_number(window.latency.sum() / answered / 1e6) if answered else None,
        percentiles=_numbers(np.minimum(quantiles(window.latencies.sum(axis=0), _FRACTIONS), slowest) / 1e6),
        slowest=_number(slowest / 1e6) if answered else None,
        batch=_number(window.items.sum() / answered) if answered else None,
        trend=_numbers(_ratio(window.requests, window.covered)),
    )


def _detail(name: str, window: Window) -> Detail:
    answered = window.requests - window.failures
    charted = np.minimum(quantiles(window.latencies, _CHARTED), window.slowest[:, None]) / 1e6
    slowest = float(window.slowest.max()) / 1e6
    batches = [(size, int(count)) for size, count in zip(BATCH_SIZES, window.batches.sum(axis=0), strict=True)]
    return Detail(
        name=name,
        errors=_numbers(_ratio(100 * window.failures, window.requests)),
        mean=_numbers(_ratio(window.latency, answered) / 1e6),
        p50=_numbers(charted[:, 0]),
        p90=_numbers(charted[:, 1]),
        p99=_numbers(charted[:, 2]),
        batch=_numbers(_ratio(window.items, answered)),
        batches=[each for each in batches if each[1]],
        cdf=[
            (_number(min(nanoseconds / 1e6, slowest)), round(share, 6))
            for nanoseconds, share in cumulative(window.latencies.sum(axis=0))
        ],
    )


def _ratio(above: npt.NDArray[np.int64], below: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return above / np.where(below > 0, below, np.nan)


def _numbers(values: npt.NDArray[np.float64]) -> Sequence[Number]:
    return [_number(each) for each in values.tolist()]


def _number(value: float) -> Number:
    """Five digits are more than any chart shows, and keep the object small."""
    return None if value != value else float(f"{value:.5g}")
