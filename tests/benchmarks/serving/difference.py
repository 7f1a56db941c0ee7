"""What lies between the work itself and the server: each step of the way beside the one before."""

import statistics
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tests.benchmarks.serving.cost import Measure, cost, floor_of, path_of, server_of
from tests.benchmarks.serving.encodings import chariot
from tests.benchmarks.serving.load import Shot, send
from tests.benchmarks.serving.processes import ROOT, charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.workload import Workload

__all__ = ("difference",)

_SMALLEST = ROOT / "fixtures" / "models" / "half_plus_two"


def difference(workload: Workload, rounds: int, requests: int) -> Section:
    """CPU of a request of chariot-v2-kserve, with more and more of what a server does."""
    model, picture = workload.model("small"), workload.pictures["vga"]
    with (
        charioteer("--model", str(workload.folder / "small")) as server,
        charioteer("--model", str(_SMALLEST)) as least,
    ):
        shot = chariot(server.ports["http"], "small", picture)
        nothing = _nothing(least.ports["http"])
        for request in (shot, nothing):
            send(request, 50, 4)
        floor = floor_of(model, shot.body, requests)
        found = cost(
            rounds,
            floor=floor,
            floors=_at_once(floor),
            path=path_of(workload.folder / "small", shot.body, requests),
            alone=server_of(server, shot, requests, 1),
            together=server_of(server, shot, requests, 8),
            nothing=server_of(least, nothing, requests * 5, 8),
        )
    base = found["floor"].median
    said = {
        "floor": "the floor",
        "floors": "two floors at once, each",
        "path": "our code from request to answer in one thread, without HTTP, log and metrics",
        "alone": "the server, 1 connection",
        "together": "the server, 8 connections",
        "nothing": "the server, a model that adds two numbers, 8 connections",
    }
    rows: list[list[Cell]] = [[said[name], result.median, result.median / base] for name, result in found.items()]
    about = (
        "CPU milliseconds of a request with the small model and the VGA image, measured in turns. Two floors at "
        "once show the cost of shared cores, memory and cache. A client on the same machine takes its share too."
    )
    return Section(title="Overhead by step", about=about, columns=["what", "CPU ms", "ratio to the floor"], rows=rows)


def _at_once(measure: Measure) -> Measure:
    """The mean of two that are measured at the same time."""

    def both() -> tuple[float, None]:
        with ThreadPoolExecutor(2) as pool:
            took = [result for result, _ in pool.map(lambda _: measure(), range(2))]
        return statistics.mean(took), None

    return both


def _nothing(port: int) -> Shot:
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    return Shot(port, "/v2/models/m-half_plus_two/infer", msgspec.json.encode({"inputs": [tensor]}))
