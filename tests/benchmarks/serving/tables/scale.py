"""Measure the cost of a request as one quantity grows."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.benchmarks.serving.cost import Measure, cost, measure_server
from tests.benchmarks.serving.load import BenchmarkRequest
from tests.benchmarks.serving.processes import ROOT, charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload

_MODELS = (1, 10, 50, 100, 200)
_CONNECTIONS = (1, 8, 64, 256, 1000)


def scale(workload: Workload, rounds: int, requests: int) -> Section:
    """Measure with more and more loaded models, and with more and more connections."""
    rows: list[list[Cell]] = []

    def add(name: str, number: int, measure: Measure) -> None:
        rows.append([name, number, cost(rounds, it=measure)["it"].median])

    _models(requests, lambda number, measure: add("models that are loaded", number, measure))
    _connections(workload, requests, lambda number, measure: add("connections at once", number, measure))
    about = (
        "CPU milliseconds of a request while one quantity grows. Models that are loaded: requests to one "
        "half_plus_two model. Connections at once: small model."
    )
    return Section(title="Scale", about=about, columns=["what grows", "to", "CPU ms"], rows=rows)


def _models(requests: int, add: Callable[[int, Measure], None]) -> None:
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [2.0]}
    body = msgspec.json.encode({"inputs": [tensor]})
    for count in _MODELS:
        with tempfile.TemporaryDirectory() as folder:
            for index in range(count):
                shutil.copytree(ROOT / "fixtures" / "models" / "half_plus_two", Path(folder) / f"model-{index}")
            with charioteer("--model-repository", folder) as server:
                request = BenchmarkRequest(server.ports["http"], f"/v2/models/model-{count - 1}/infer", body)
                add(count, measure_server(server, request, requests * 3, 8))


def _connections(workload: Workload, requests: int, add: Callable[[int, Measure], None]) -> None:
    with charioteer("--model", str(workload.folder / "small"), "--max-waiting", "2000") as server:
        request = chariot(server.ports["http"], "small", workload.images["vga"])
        for count in _CONNECTIONS:
            add(count, measure_server(server, request, max(requests, 2 * count), count))
