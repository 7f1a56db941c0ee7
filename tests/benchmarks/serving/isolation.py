"""What a model in a process of its own costs beside the same model in the server."""

import json
import shutil
import statistics
from pathlib import Path

from tests.benchmarks.serving.cost import cost, server_of
from tests.benchmarks.serving.encodings import chariot
from tests.benchmarks.serving.load import send
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.workload import Workload

__all__ = ("isolation",)

_MODELS = ("small", "medium")
_CASES = (("small", "vga", 1), ("small", "vga", 8), ("small", "hd", 8), ("medium", "vga", 8))


def isolation(workload: Workload, rounds: int, requests: int) -> Section:
    """The same requests to the same model in the server, and in a process of its own that the same server keeps."""
    folder = workload.folder.parent / "isolation"
    for name in _MODELS:
        shutil.copytree(workload.folder / name, folder / name)
        _isolated_copy(workload.folder / name, folder / f"{name}-alone")
    rows: list[list[Cell]] = []
    with charioteer("--model-repository", str(folder)) as server:
        for name, picture, connections in _CASES:
            file = workload.pictures[picture]
            inside, alone = (chariot(server.ports["http"], model, file) for model in (name, f"{name}-alone"))
            for shot in (inside, alone):
                send(shot, 50, connections)
            found = cost(
                rounds,
                inside=server_of(server, inside, requests, connections),
                alone=server_of(server, alone, requests, connections),
            )
            pairs = zip(found["inside"].milliseconds, found["alone"].milliseconds, strict=True)
            more = statistics.median(high - low for low, high in pairs)
            row: list[Cell] = [name, picture, connections, found["inside"].median, found["alone"].median, more]
            for result in found.values():
                assert result.took is not None
                row += [result.took.rate, result.took.percentile(0.5)]
            rows.append(row)
    about = (
        "CPU milliseconds of a chariot-v2-kserve request to a model in the server, and to the same model with "
        '`"isolate": true`. '
        "CPU covers both processes; the two take turns. The difference is the median of the rounds' differences. "
        "Requests a second and latencies are those of the last round."
    )
    columns = ["model", "image", "connections", "in the server", "isolated", "difference"]
    columns += ["requests/s", "p50 ms", "isolated requests/s", "isolated p50 ms"]
    return Section(title="Isolated models", about=about, columns=columns, rows=rows)


def _isolated_copy(model: Path, to: Path) -> None:
    shutil.copytree(model, to)
    settings = json.loads((to / "model-settings.json").read_text())
    (to / "model-settings.json").write_text(json.dumps({**settings, "isolate": True}))
