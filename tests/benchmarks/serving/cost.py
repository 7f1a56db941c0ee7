"""CPU milliseconds a request of two things that take turns, so that whatever else the machine does meets both."""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from tests.benchmarks.serving.load import Shot, Took, send
from tests.benchmarks.serving.processes import ROOT, Running

__all__ = ("Cost", "Measure", "cost", "floor_of", "path_of", "server_of")

Measure: TypeAlias = Callable[[], tuple[float, Took | None]]
"""Gives the CPU milliseconds of a request, and what became of the load if there was one."""


class Cost(msgspec.Struct, frozen=True):
    """What a request costs.

    Attributes:
        milliseconds: CPU, of each round.
        took: of the last round.
    """

    milliseconds: list[float]
    took: Took | None = None

    @property
    def median(self) -> float:
        """CPU milliseconds, the median of the rounds."""
        return statistics.median(self.milliseconds)


def cost(rounds: int, **ways: Measure) -> dict[str, Cost]:
    """Each of `ways` measured `rounds` times, in turns."""
    seen: dict[str, list[tuple[float, Took | None]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, measure in ways.items():
            seen[name].append(measure())
    return {name: Cost([row for row, _ in rows], rows[-1][1]) for name, rows in seen.items()}


def server_of(server: Running, shot: Shot, requests: int, connections: int) -> Measure:
    """The cost of a request in a server."""

    def measure() -> tuple[float, Took | None]:
        before = server.cpu_seconds()
        took = send(shot, requests, connections)
        return (server.cpu_seconds() - before) / requests * 1000, took

    return measure


def floor_of(model: Path, body: bytes, requests: int) -> Measure:
    """The cost of the work itself (`tests.benchmarks.serving.floor`)."""
    return _printed("tests.benchmarks.serving.floor", model, body, requests)


def path_of(model: Path, body: bytes, requests: int) -> Measure:
    """The cost of our own path through it (`tests.benchmarks.serving.own_path`); `model` is a folder."""
    return _printed("tests.benchmarks.serving.own_path", model, body, requests)


def _printed(module: str, model: Path, body: bytes, requests: int) -> Measure:
    def measure() -> tuple[float, Took | None]:
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(body)
            command = [sys.executable, "-m", module, str(model), file.name, str(requests)]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        return float(done.stdout), None

    return measure
