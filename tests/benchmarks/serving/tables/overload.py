"""Measure goodput under overload."""

import os
from collections.abc import Sequence

from tests.benchmarks.serving.load import BenchmarkRequest, LoadResult, flood
from tests.benchmarks.serving.processes import RunningServer, charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload

CONNECTIONS = 300
_TIMES = (3, 10)
MODEL = "medium"


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
            with charioteer("--model", str(workload.folder / MODEL), *arguments) as server:
                os.sched_setaffinity(0, load_cores)
                request = request_for(workload, server)
                flood(request, 2, 1)
                rows += [[name, *row] for row in _rows(server, request, seconds)]
        finally:
            os.sched_setaffinity(0, cores)
    about = (
        f"The medium model and the VGA image over {CONNECTIONS} connections. Capacity is what four connections "
        "reach in a closed loop, measured before each row. Each row offers a multiple of it. In the closed loop, "
        "every connection sends again at once and ignores `Retry-After`. Unsent requests found no idle connection, "
        "because the server does not read rejected ones for a while. If other programs share the machine, the share "
        "of server CPU is steadier than the ratio of the rates."
    )
    columns = ["server", "offered", "capacity, 1/s", "goodput / capacity", "share of server CPU"]
    columns += ["rejected, 1/s", "unsent, 1/s", "lost"]
    return Section(title="Overload", about=about, columns=columns, rows=rows)


def request_for(workload: Workload, server: RunningServer) -> BenchmarkRequest:
    """Return the request that all clients send."""
    return chariot(server.ports["http"], MODEL, workload.images["vga"])


def _rows(server: RunningServer, request: BenchmarkRequest, seconds: float) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for factor in (*_TIMES, 0):
        capacity, cost = measure(server, request, 4, seconds)
        rate = factor * capacity.rate
        overloaded, overloaded_cost = measure(server, request, CONNECTIONS, seconds, rate)
        answered, rejected = overloaded.statuses.get(200, 0), overloaded.statuses.get(429, 0)
        rows.append(
            [
                f"{factor} x" if factor else "closed loop",
                capacity.rate,
                overloaded.rate / capacity.rate,
                cost / overloaded_cost,
                rejected / overloaded.seconds,
                overloaded.unsent / overloaded.seconds,
                sum(overloaded.statuses.values()) - answered - rejected,
            ]
        )
    return rows


def measure(
    server: RunningServer, request: BenchmarkRequest, connections: int, seconds: float, rate: float = 0.0
) -> tuple[LoadResult, float]:
    """Run a flood, and return its result and the server's CPU seconds for each answer."""
    started = server.cpu_seconds()
    overloaded = flood(request, connections, seconds, rate)
    return overloaded, (server.cpu_seconds() - started) / max(1, overloaded.statuses.get(200, 0))
