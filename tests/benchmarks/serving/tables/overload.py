"""Measure goodput and queue times under overload."""

import json
import os
from collections.abc import Sequence

from tests.benchmarks.serving.flood import FloodResult, flood, request_bytes
from tests.benchmarks.serving.processes import RunningServer, charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload

_CONNECTIONS = 300
_TIMES = (3, 10)
_MODEL = "medium"
_QUEUE_SECONDS = (0.05, 0.2)


def overload(workload: Workload, seconds: float) -> Section:
    """Measure goodput at multiples of the capacity, with shared and with separate cores."""
    rows: list[list[Cell]] = []
    cores = sorted(os.sched_getaffinity(0))
    layouts: list[tuple[str, Sequence[int], Sequence[int], Sequence[str]]] = [
        ("cores shared with the load", cores, cores, ()),
        ("one core each", cores[:1], cores[1:] or cores, ("--workers", "1")),
    ]
    for name, server_cores, load_cores, arguments in layouts:
        os.sched_setaffinity(0, server_cores)
        try:
            with charioteer("--model", str(workload.folder / _MODEL), *arguments) as server:
                os.sched_setaffinity(0, load_cores)
                request = _request(workload, server)
                flood(server.ports["http"], request, 2, 1)
                rows += [[name, *row] for row in _rows(server, request, seconds)]
        finally:
            os.sched_setaffinity(0, cores)
    about = (
        f"The medium model and the VGA image over {_CONNECTIONS} connections. Capacity is what four connections "
        "reach in a closed loop, measured before each row. Each row offers a multiple of it. In the closed loop, "
        "every connection sends again at once and ignores `Retry-After`. Unsent requests found no idle connection, "
        "because the server does not read refused ones for a while. If other programs share the machine, the share "
        "of server CPU is steadier than the ratio of the rates."
    )
    columns = [
        "server",
        "offered",
        "capacity, 1/s",
        "goodput / capacity",
        "share of server CPU",
        "refused, 1/s",
        "unsent, 1/s",
        "lost",
    ]
    return Section(title="Overload", about=about, columns=columns, rows=rows)


def queue_time(workload: Workload, seconds: float) -> Section:
    """Measure how long requests wait in the queue with `--max-queue-seconds`."""
    rows: list[list[Cell]] = []
    for max_seconds in _QUEUE_SECONDS:
        arguments = ("--max-queue-seconds", str(max_seconds), "--model", str(workload.folder / _MODEL))
        with charioteer(*arguments) as server:
            request = _request(workload, server)
            capacity = flood(server.ports["http"], request, 4, seconds).goodput
            before = len(server.lines)
            flood(server.ports["http"], request, _CONNECTIONS, seconds, 3 * capacity)
            lines = server.lines[before:]
        admitted, answered = _queue_times(lines)
        within = [wait for wait in admitted if wait <= max_seconds * 1000]
        rows.append(
            [
                max_seconds,
                len(admitted),
                len(within) / max(1, len(admitted)),
                max(answered, default=0.0),
                len(answered) / max(1, len(admitted)),
            ]
        )
    about = (
        "The medium model and the VGA image, at three times the capacity. Admitted requests waited for a worker. "
        "Those that waited too long were refused at their turn."
    )
    columns = ["--max-queue-seconds", "admitted", "waited within", "longest wait of an answer, ms", "answered"]
    return Section(title="Time in the queue", about=about, columns=columns, rows=rows)


def _request(workload: Workload, server: RunningServer) -> bytes:
    request = chariot(server.ports["http"], _MODEL, workload.images["vga"])
    return request_bytes("POST", request.target, request.body)


def _rows(server: RunningServer, request: bytes, seconds: float) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for factor in (*_TIMES, 0):
        capacity, cost = _measure(server, request, 4, seconds)
        rate = factor * capacity.goodput
        overloaded, overloaded_cost = _measure(server, request, _CONNECTIONS, seconds, rate)
        answered, refused = overloaded.statuses.get(200, 0), overloaded.statuses.get(429, 0)
        rows.append(
            [
                f"{factor} x" if factor else "closed loop",
                capacity.goodput,
                overloaded.goodput / capacity.goodput,
                cost / overloaded_cost,
                overloaded.refused,
                overloaded.unsent / overloaded.seconds,
                sum(overloaded.statuses.values()) - answered - refused,
            ]
        )
    return rows


def _measure(
    server: RunningServer, request: bytes, connections: int, seconds: float, rate: float = 0.0
) -> tuple[FloodResult, float]:
    """Run a flood, and return its result and the server's CPU seconds for each answer."""
    started = server.cpu_seconds()
    overloaded = flood(server.ports["http"], request, connections, seconds, rate)
    return overloaded, (server.cpu_seconds() - started) / max(1, overloaded.statuses.get(200, 0))


def _queue_times(lines: Sequence[bytes]) -> tuple[list[float], list[float]]:
    """Return queue times in milliseconds of requests that reached a worker, and of answered requests."""
    admitted: list[float] = []
    answered: list[float] = []
    for line in lines:
        if b'"queue_ms"' not in line:
            continue
        figures = json.loads(line)
        if figures["outcome"] == "ok":
            answered.append(figures["queue_ms"])
        if figures["queue_ms"] > 0:
            admitted.append(figures["queue_ms"])
    return admitted, answered
