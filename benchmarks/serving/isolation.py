"""What a model in a process of its own costs beside the same model in the server."""

import json
import shutil
import statistics
from pathlib import Path

from benchmarks.serving.cost import cost, server_of
from benchmarks.serving.encodings import chariot
from benchmarks.serving.load import send
from benchmarks.serving.processes import charioteer
from benchmarks.serving.section import Cell, Section
from benchmarks.serving.workload import Workload

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
            inside, alone = (chariot(server.ports["http"], each, file) for each in (name, f"{name}-alone"))
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
            for each in found.values():
                assert each.took is not None
                row += [each.took.rate, each.took.percentile(0.5)]
            rows.append(row)
    about = (
        "CPU milliseconds of a request of chariot-v2-kserve to a model in the server, and to the same model with "
        '`"isolate": true`, of both processes together, in turns; the difference is the median of the rounds\' '
        "differences. Requests a second and latencies are those of the last round."
    )
    columns = ["model", "picture", "connections", "in the server", "isolated", "difference"]
    columns += ["requests/s", "p50 ms", "isolated requests/s", "isolated p50 ms"]
    return Section(title="A model in a process of its own", about=about, columns=columns, rows=rows)


def _isolated_copy(model: Path, to: Path) -> None:
    shutil.copytree(model, to)
    settings = json.loads((to / "model-settings.json").read_text())
    (to / "model-settings.json").write_text(json.dumps({**settings, "isolate": True}))
