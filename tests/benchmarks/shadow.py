"""Print how often the interval of the difference is right, and what a shadow version costs.

The coverage is that of simulated images, the lowest of several scenarios. The cost is the median of turns with and
without a shadow version, one request at a time. Usage: ``python -m tests.benchmarks.shadow`` (minutes).
"""

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.plugins.shadow.statistics import pair
from tests.benchmarks.serving.cost import cost, measure_server
from tests.benchmarks.serving.processes import ROOT, RunningServer, charioteer
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import copy_model

_CLASSIFIER = ROOT / "fixtures" / "models" / "classifier"
_IMAGE = ROOT / "fixtures" / "images" / "photo.jpg"
_TURNS = 5
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
    kinds = ("without", "with")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            kind: stack.enter_context(_serving(Path(folder) / kind, with_shadow=kind == "with")) for kind in kinds
        }
        sent = {kind: chariot(server.ports["http"], "classifier", _IMAGE) for kind, server in servers.items()}
        measures = {kind: measure_server(server, sent[kind], requests, 1) for kind, server in servers.items()}
        costs = cost(_TURNS, **measures)
        for kind, server in servers.items():
            metrics = httpx.get(f"http://127.0.0.1:{server.ports['http']}/metrics", timeout=60).text
            if ('outcome="agreed"' in metrics) != (kind == "with"):
                raise RuntimeError(f"{kind} a shadow version, another server was expected")
    shown = Table("shadow version", "p50 ms", "CPU ms a request", title=f"classifier, median of {_TURNS} turns")
    medians = {
        kind: (statistics.median(load.percentile(0.5) for load in costs[kind].loads), costs[kind].median)
        for kind in kinds
    }
    for kind, values in medians.items():
        shown.add_row(kind, *(f"{value:.2f}" for value in values))
    ratios = [after / before for before, after in zip(medians["without"], medians["with"], strict=True)]
    shown.add_row("ratio", *(f"{ratio:.3f}" for ratio in ratios))
    Console(width=120).print(shown)


def _serving(folder: Path, *, with_shadow: bool) -> AbstractContextManager[RunningServer]:
    """Serve two versions of the demo classifier. Clients get the first."""
    changes = {"shadow": {"version": "2", "share": 0.1}} if with_shadow else {}
    for version in ("1", "2"):
        copy_model(_CLASSIFIER, folder / "classifier" / version, changes if version == "1" else {})
    (folder / "classifier" / "model-settings.json").write_text(json.dumps({"versions": ["1"]}))
    # Otherwise requests would mainly wait for the disk.
    recording = ("--record", str(folder / "store.db"), "--record-mode", "best-effort")
    return charioteer("--model-repository", str(folder), *recording)


if __name__ == "__main__":
    main()
