"""Compare the CPU of a request of checkouts, in turns: ``python -m tests.benchmarks.costs CHECKOUT ...``.

All of them run with this Python. The floor and the bare server are those of `make bench`; the numbers are medians of
the rounds' ratios.
"""

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.serving.cost import Cost, cost, measure_floor, measure_server
from tests.benchmarks.serving.load import BenchmarkRequest
from tests.benchmarks.serving.peer_servers import run_bare
from tests.benchmarks.serving.processes import ROOT, charioteer
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import copy_model, make_workload

_CASES = (("small", "vga"), ("small", "hd"), ("medium", "vga"), ("medium", "hd"))
_ROUNDS = 8
_REQUESTS = 250
_SCALARS = 2000
_SCALAR = "half_plus_two"


def main() -> None:
    """Print one line a model, image, number of connections and pipeline, with the ratios to the floor and the first."""
    checkouts = [Path(argument).resolve() for argument in sys.argv[1:]] or [ROOT]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        workload = make_workload(Path(folder))
        models = {model: workload.model(model) for model, _ in _CASES}
        served = Path(folder) / "served"
        copy_model(ROOT / "fixtures" / "models" / _SCALAR, served / _SCALAR, {})
        for model in models:
            copy_model(workload.folder / model, served / model, {})
            copy_model(workload.folder / model, served / f"{model}-opencv", {"preprocessing": {"antialias": False}})
        running = {
            checkout.name: servers.enter_context(charioteer("--model-repository", str(served), folder=checkout))
            for checkout in checkouts
        }
        bare = servers.enter_context(run_bare(models))
        for connections in (1, 8):
            body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [3.0]}]}).encode()
            measures = {
                name: measure_server(
                    server,
                    BenchmarkRequest(server.ports["http"], f"/v2/models/{_SCALAR}/infer", body),
                    _SCALARS,
                    connections,
                )
                for name, server in running.items()
            }
            _show("scalar", connections, cost(_ROUNDS, **measures), checkouts[0].name)
            for model, image in _CASES:
                for pipeline in ("", "-opencv"):
                    requests = {
                        name: chariot(server.ports["http"], model + pipeline, workload.images[image])
                        for name, server in running.items()
                    }
                    body = requests[checkouts[0].name].body
                    measures = {
                        "floor": measure_floor(models[model], body, _REQUESTS),
                        "bare": measure_server(
                            bare, BenchmarkRequest(bare.ports["http"], f"/{model}", body), _REQUESTS, connections
                        ),
                        **{
                            name: measure_server(server, requests[name], _REQUESTS, connections)
                            for name, server in running.items()
                        },
                    }
                    results = cost(_ROUNDS, **measures)
                    _show(f"{model}{pipeline} {image}", connections, results, checkouts[0].name)


def _show(case: str, connections: int, results: dict[str, Cost], first: str) -> None:
    cells = [f"{name} {result.median:.2f} ms" for name, result in results.items()]
    for name, result in results.items():
        bases = [base for base in ("bare", first) if base in results and name not in ("floor", "bare", base)]
        cells += [f"{name}/{base} {result.median_ratio_to(results[base]):.2f}" for base in bases]
    print(f"{case}, {connections}:", ", ".join(cells), flush=True)


if __name__ == "__main__":
    main()
