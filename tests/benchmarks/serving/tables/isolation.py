"""Measure the cost of an isolated model against the same model in the server's process."""

import shutil
import statistics

from tests.benchmarks.serving.cost import cost, measure_server
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload, copy_model

_MODELS = ("small", "medium")
_CASES = (("small", "vga", 1), ("small", "vga", 8), ("small", "hd", 8), ("medium", "vga", 8))


def isolation(workload: Workload, rounds: int, requests: int) -> Section:
    """Send the same requests to a model in the server's process, and to an isolated copy."""
    folder = workload.folder.parent / "isolation"
    for name in _MODELS:
        shutil.copytree(workload.folder / name, folder / name)
        copy_model(workload.folder / name, folder / f"{name}-alone", {"isolate": True})
    rows: list[list[Cell]] = []
    with charioteer("--model-repository", str(folder)) as server:
        for name, image, connections in _CASES:
            file = workload.images[image]
            inside, alone = (chariot(server.ports["http"], model, file) for model in (name, f"{name}-alone"))
            costs = cost(
                rounds,
                inside=measure_server(server, inside, requests, connections),
                alone=measure_server(server, alone, requests, connections),
            )
            pairs = zip(costs["inside"].milliseconds, costs["alone"].milliseconds, strict=True)
            difference = statistics.median(high - low for low, high in pairs)
            loads = [value for result in costs.values() for value in (result.load.rate, result.load.percentile(0.5))]
            medians = [result.median for result in costs.values()]
            rows.append([name, image, connections, *medians, difference, *loads])
    about = (
        "CPU milliseconds of a chariot-v2-kserve request to a model in the server, and to the same model with "
        '`"isolate": true`. '
        "CPU covers both processes; the two take turns. The difference is the median of the rounds' differences. "
        "Requests a second and latencies are those of the last round."
    )
    columns = ["model", "image", "connections", "in the server", "isolated", "difference"]
    columns += ["requests/s", "p50 ms", "isolated requests/s", "isolated p50 ms"]
    return Section(title="Isolated models", about=about, columns=columns, rows=rows)
