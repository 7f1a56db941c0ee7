"""Print what a shadow version costs: ``python -m tests.benchmarks.shadow`` (minutes).

The cost is the median of turns with and without a shadow version, one request at a time.
"""

import argparse
import base64
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from tests.benchmarks.serving.processes import cpu_of_family
from tests.support.servers.server_process import ROOT, run_server

_TURNS = 5
_WARM_UP = 60
_SECONDS_UNTIL_WRITTEN = 2.0
"""A shadow version loads at its first request, and its rows are written when it is idle for a second."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000, help="in each turn")
    requests = parser.parse_args().requests
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
