"""Measure the overhead of each step between the bare work and the server."""

import statistics
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tests.benchmarks.serving.cost import Measure, cost, measure_floor, measure_own_path, measure_server
from tests.benchmarks.serving.load import BenchmarkRequest, send
from tests.benchmarks.serving.peer_servers import run_bare
from tests.benchmarks.serving.processes import ROOT, charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload

_SMALLEST = ROOT / "fixtures" / "models" / "half_plus_two"


def difference(workload: Workload, rounds: int, requests: int) -> Section:
    """Measure the CPU of a chariot-v2-kserve request with increasing parts of the server."""
    model, image = workload.model("small"), workload.images["vga"]
    with (
        charioteer("--model", str(workload.folder / "small")) as server,
        charioteer("--model", str(_SMALLEST)) as smallest_server,
        run_bare({"small": model}) as bare_server,
    ):
        request = chariot(server.ports["http"], "small", image)
        smallest_request = _smallest_request(smallest_server.ports["http"])
        bare_request = BenchmarkRequest(bare_server.ports["http"], "/small", request.body)
        for warm_up_request in (request, smallest_request, bare_request):
            send(warm_up_request, 50, 4)
        floor = measure_floor(model, request.body, requests)
        costs = cost(
            rounds,
            floor=floor,
            floors=_measure_twice_at_once(floor),
            path=measure_own_path(workload.folder / "small", request.body, requests),
            bare_alone=measure_server(bare_server, bare_request, requests, 1),
            bare_together=measure_server(bare_server, bare_request, requests, 8),
            alone=measure_server(server, request, requests, 1),
            together=measure_server(server, request, requests, 8),
            nothing=measure_server(smallest_server, smallest_request, requests * 5, 8),
        )
    base = costs["floor"].median
    row_names = {
        "floor": "the floor",
        "floors": "two floors at once, each",
        "path": "our code from request to answer in one thread, without HTTP, log and metrics",
        "bare_alone": "the floor behind a bare ASGI handler, 1 connection",
        "bare_together": "the floor behind a bare ASGI handler, 8 connections",
        "alone": "the server, 1 connection",
        "together": "the server, 8 connections",
        "nothing": "the server, a model that adds two numbers, 8 connections",
    }
    rows: list[list[Cell]] = [[row_names[name], result.median, result.median / base] for name, result in costs.items()]
    about = (
        "CPU milliseconds of a request with the small model and the VGA image, measured in turns. Two floors at "
        "once show the cost of shared cores, memory and cache. A client on the same machine takes its share too."
    )
    return Section(title="Overhead by step", about=about, columns=["what", "CPU ms", "ratio to the floor"], rows=rows)


def _measure_twice_at_once(measure: Measure) -> Measure:
    """Measure twice at the same time, and return the mean."""

    def both() -> tuple[float, None]:
        with ThreadPoolExecutor(2) as pool:
            milliseconds = [result for result, _ in pool.map(lambda _: measure(), range(2))]
        return statistics.mean(milliseconds), None

    return both


def _smallest_request(port: int) -> BenchmarkRequest:
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    return BenchmarkRequest(port, "/v2/models/m-half_plus_two/infer", msgspec.json.encode({"inputs": [tensor]}))
