"""Measure optional settings of models: OpenCV's resize, reduced JPEG decoding, and batching."""

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.serving.cost import cost, measure_floor, measure_server
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload, copy_model

_PLAIN = "plain"
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    _PLAIN: {},
    "antialias false": {"preprocessing": {"antialias": False}},
    "reduced_decode": {"preprocessing": {"reduced_decode": True}},
    "batching 4, 2 ms": {"batching": {"max_size": 4, "max_delay_ms": 2}},
    "batching 8, 5 ms": {"batching": {"max_size": 8, "max_delay_ms": 5}},
}


def shortcuts(workload: Workload, rounds: int, requests: int) -> Section:
    """Send the same requests to the same model with different settings."""
    folder = workload.folder.parent / "shortcuts"
    for index, changes in enumerate(_SETTINGS.values()):
        copy_model(workload.folder / "small", folder / f"way-{index}", changes)
    rows: list[list[Cell]] = []
    with charioteer("--model-repository", str(folder)) as server:
        for image, file in workload.images.items():
            requests_by_name = {
                name: chariot(server.ports["http"], f"way-{index}", file) for index, name in enumerate(_SETTINGS)
            }
            body = requests_by_name[_PLAIN].body
            costs = cost(
                rounds,
                floor=measure_floor(workload.model("small"), body, requests),
                **{name: measure_server(server, request, requests, 8) for name, request in requests_by_name.items()},
            )
            floor = costs.pop("floor").median
            for name, result in costs.items():
                ratios = [result.median / costs[_PLAIN].median, result.median / floor]
                rows.append([image, name, result.median, *ratios, result.load.rate, *result.load.latency])
    about = (
        "The small model with several settings in `model-settings.json`, measured in turns, with 8 connections. The "
        "floor decodes images in full."
    )
    columns = ["image", "settings", "CPU ms", f"ratio to {_PLAIN}", "ratio to the floor"]
    columns += ["requests/s", "p50 ms", "p99 ms"]
    return Section(title="Optional settings", about=about, columns=columns, rows=rows)
