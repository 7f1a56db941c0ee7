"""What models may opt into: JPEGs decoded at a fraction of their size, requests gathered into batches."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.serving.cost import cost, server_of
from tests.benchmarks.serving.encodings import chariot
from tests.benchmarks.serving.load import send
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.workload import Workload

__all__ = ("shortcuts",)

_PLAIN = "plain"
_WAYS: Mapping[str, Mapping[str, Any]] = {
    _PLAIN: {},
    "reduced_decode": {"preprocessing": {"reduced_decode": True}},
    "batching 4, 2 ms": {"batching": {"max_size": 4, "max_delay_ms": 2}},
    "batching 8, 5 ms": {"batching": {"max_size": 8, "max_delay_ms": 5}},
}


def shortcuts(workload: Workload, rounds: int, requests: int) -> Section:
    """The same requests to the same model with one setting and another."""
    folder = workload.folder.parent / "shortcuts"
    for index, more in enumerate(_WAYS.values()):
        _copy(workload.folder / "small", folder / f"way-{index}", more)
    rows: list[list[Cell]] = []
    with charioteer("--model-repository", str(folder)) as server:
        for picture, file in workload.pictures.items():
            shots = {name: chariot(server.ports["http"], f"way-{index}", file) for index, name in enumerate(_WAYS)}
            for shot in shots.values():
                send(shot, 50, 8)
            found = cost(rounds, **{name: server_of(server, shot, requests, 8) for name, shot in shots.items()})
            for name, result in found.items():
                took = result.took
                assert took is not None
                latency = [took.percentile(share) for share in (0.5, 0.99)]
                rows.append([picture, name, result.median, result.median / found[_PLAIN].median, took.rate, *latency])
    about = "The small model with several settings in `model-settings.json`, measured in turns, with 8 connections."
    columns = ["image", "settings", "CPU ms", f"ratio to {_PLAIN}", "requests/s", "p50 ms", "p99 ms"]
    return Section(title="Optional settings", about=about, columns=columns, rows=rows)


def _copy(model: Path, to: Path, more: Mapping[str, Any]) -> None:
    shutil.copytree(model, to)
    settings = json.loads((to / "model-settings.json").read_text())
    for name, value in more.items():
        settings[name] = {**settings.get(name, {}), **value}
    (to / "model-settings.json").write_text(json.dumps(settings))
