"""Print how often the interval of the difference is right, and what a shadow version costs.

The coverage is that of simulated images, the lowest of several scenarios. The cost is the median of turns with and
without a shadow version, one request at a time. Usage: ``python -m tests.benchmarks.shadow`` (minutes).
"""

import argparse
import base64
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.plugins.shadow.statistics import pair
from tests.benchmarks.serving.processes import cpu_of_family
from tests.support.servers.server_process import ROOT, run_server

_TURNS = 5
_WARM_UP = 60
_SECONDS_UNTIL_WRITTEN = 2.0
"""A shadow version loads at its first request, and its rows are written when it is idle for a second."""

_COUNTS = (10, 15, 20, 30, 50, 100, 200)
_DRAWS = 1000
_MIN_COVERAGE = 0.94
_RIGHT = (0.5, 0.7, 0.9, 0.98)
_DIFFERENCES = (-0.05, 0.0, 0.05)
_SHARED = (0.0, 0.8, 1.0)
"""How much of what one version finds the other finds too."""

Counts = NDArray[np.float64]


def main() -> None:
    """Print the tables; exit with 1 if an interval is wrong too often."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000, help="in each turn")
    requests = parser.parse_args().requests
    coverage = Table("images", "classes", "objects", title=f"lowest coverage of 95 % intervals, {_DRAWS} draws")
    rows = [(count, _lowest_coverage(count, 1), _lowest_coverage(count, 6)) for count in _COUNTS]
    for count, *values in rows:
        coverage.add_row(str(count), *(f"{value:.3f}" for value in values))
    Console(width=120).print(coverage)
    _print_cost(requests)
    sys.exit(any(min(values) < _MIN_COVERAGE for _, *values in rows))


def _lowest_coverage(count: int, objects: int) -> float:
    rng = np.random.default_rng(0)
    covered: list[float] = []
    for right, difference, shared in product(_RIGHT, _DIFFERENCES, _SHARED):
        if right + difference > 1:
            continue
        images = _draw(rng, _DRAWS * count, objects, (right, right + difference), shared)
        # The true difference of F1 is that of many images.
        scores = pair(*(version.reshape(-1, 3) for version in images))
        true = scores.shadow - scores.champion if objects > 1 else difference
        sets = zip(*(version.reshape(_DRAWS, count, 3) for version in images), strict=True)
        found = [pair(*one).difference() for one in sets]
        covered.append(sum(one.low <= true + 1e-9 and one.high >= true - 1e-9 for one in found) / len(found))
    return min(covered)


def _draw(
    rng: np.random.Generator, count: int, objects: int, right: tuple[float, float], shared: float
) -> tuple[Counts, Counts]:
    """Return (count, 3) right, wrong and missed of both versions; what is missed is found with another label."""
    present = np.arange(objects) < (rng.integers(1, 2 * objects, count) if objects > 1 else np.ones(count))[:, None]
    # Some images are hard for both versions.
    hard = rng.normal(0, 0.1, (count, 1)) if objects > 1 else 0.0
    first = rng.random((count, objects))
    second = np.where(rng.random((count, objects)) < shared, first, rng.random((count, objects)))
    versions: list[Counts] = []
    for chance, share in zip((first, second), right, strict=True):
        hits = ((chance < share + hard) & present).sum(axis=1)
        missed = present.sum(axis=1) - hits
        versions.append(np.stack([hits, missed, missed], axis=1).astype(np.float64))
    return versions[0], versions[1]


def _print_cost(requests: int) -> None:
    turns = {name: [list[float](), list[float]()] for name in ("without", "with")}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(_TURNS):
            for name in ("without", "with") if turn % 2 else ("with", "without"):
                measured = _measure(Path(folder) / f"{name}{turn}", requests, with_shadow=name == "with")
                for column, value in zip(turns[name], measured, strict=True):
                    column.append(value)
    shown = Table("shadow version", "p50 ms", "CPU ms a request", title=f"classifier, median of {_TURNS} turns")
    medians = {name: [statistics.median(column) for column in columns] for name, columns in turns.items()}
    for name, values in medians.items():
        shown.add_row(name, *(f"{value:.2f}" for value in values))
    ratios = [after / before for before, after in zip(medians["without"], medians["with"], strict=True)]
    shown.add_row("ratio", *(f"{ratio:.3f}" for ratio in ratios))
    Console(width=120).print(shown)


def _measure(folder: Path, requests: int, *, with_shadow: bool) -> Sequence[float]:
    """Return the median milliseconds of a request, and the CPU milliseconds of the server for each.

    The server has two versions of the demo classifier. Clients get the first.
    """
    for version in ("1", "2"):
        shutil.copytree(ROOT / "fixtures" / "models" / "classifier", folder / "classifier" / version)
    if with_shadow:
        file = folder / "classifier" / "1" / "model-settings.json"
        settings = json.loads(file.read_text()) | {"shadow": {"version": "2", "share": 0.1}}
        file.write_text(json.dumps(settings))
    (folder / "classifier" / "model-settings.json").write_text(json.dumps({"versions": ["1"]}))
    data = base64.b64encode((ROOT / "fixtures" / "images" / "photo.jpg").read_bytes()).decode()
    body = {"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [data]}]}
    # Otherwise requests would mainly wait for the disk.
    recording = ("--record", str(folder / "store.db"), "--record-mode", "best-effort")
    arguments = ("--model-repository", str(folder), *recording)
    with run_server(*arguments) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        seconds, cpu = list[float](), 0.0
        for index in range(requests + _WARM_UP):
            if index == _WARM_UP:
                time.sleep(_SECONDS_UNTIL_WRITTEN)
                cpu = cpu_of_family(server.process.pid)
            started = time.perf_counter()
            client.post("/v2/models/m-classifier/infer", json=body).raise_for_status()
            seconds.append(time.perf_counter() - started)
        used = cpu_of_family(server.process.pid) - cpu
        answered = 'outcome="agreed"' in client.get("/metrics").text
    if answered != with_shadow:
        raise RuntimeError("the shadow version did not answer" if with_shadow else "there is a shadow version")
    return statistics.median(seconds[_WARM_UP:]) * 1000, used * 1000 / requests


if __name__ == "__main__":
    main()
