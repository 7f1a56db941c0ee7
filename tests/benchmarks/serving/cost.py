"""Measure CPU milliseconds a request of several candidates in turns, so that other load affects all of them."""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from tests.benchmarks.serving.load import BenchmarkRequest, LoadResult, send
from tests.benchmarks.serving.processes import ROOT, RunningServer

Measure: TypeAlias = Callable[[], tuple[float, LoadResult | None]]
"""Returns the CPU milliseconds of a request, and the result of the load if there was one."""


class Cost(msgspec.Struct, frozen=True):
    """The CPU milliseconds of a request, and the results of the load if there was one, in each round."""

    milliseconds: list[float]
    loads: list[LoadResult]

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def load(self) -> LoadResult:
        """The result of the last round."""
        return self.loads[-1]

    def ratios_to(self, other: "Cost") -> list[float]:
        return sorted(own / base for own, base in zip(self.milliseconds, other.milliseconds, strict=True))

    def median_ratio_to(self, other: "Cost") -> float:
        return statistics.median(self.ratios_to(other))


def cost(rounds: int, **measures: Measure) -> dict[str, Cost]:
    """Run each of `measures` `rounds` times, in turns."""
    results: dict[str, list[tuple[float, LoadResult | None]]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            results[name].append(measure())
    return {
        name: Cost([used for used, _ in rows], [load for _, load in rows if load is not None])
        for name, rows in results.items()
    }


def measure_server(server: RunningServer, request: BenchmarkRequest, requests: int, connections: int) -> Measure:
    """Measure the cost of a request in a server, after some requests that do not count."""
    send(request, 50, min(connections, 8))

    def measure() -> tuple[float, LoadResult | None]:
        before = server.cpu_seconds()
        load_result = send(request, requests, connections)
        return (server.cpu_seconds() - before) / requests * 1000, load_result

    return measure


def measure_floor(model: Path, body: bytes, requests: int) -> Measure:
    """Measure the cost of the bare work (`tests.benchmarks.serving.floor`)."""

    def measure() -> tuple[float, LoadResult | None]:
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(body)
            command = [sys.executable, "-m", "tests.benchmarks.serving.floor", str(model), file.name, str(requests)]
            process = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        return float(process.stdout), None

    return measure
