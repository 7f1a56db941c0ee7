"""Compare other servers with plain and tuned Charioteer: the same model and image, measured in turns."""

import subprocess
import sys
from itertools import product

from tests.benchmarks.serving.cost import Cost, cost, measure_server
from tests.benchmarks.serving.load import BenchmarkRequest
from tests.benchmarks.serving.peer_servers import PEERS, install, run_peer
from tests.benchmarks.serving.processes import RunningServer, charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.tables.tuned import show_ratio, tune
from tests.benchmarks.serving.workload import IMAGE_SIZES, Workload, copy_model

_CONNECTIONS = 8
_MODELS = ("small", "medium", "detector")
_PIPELINES = {"plain": "as documented", "ours": "with our pipeline"}
_COLUMNS = ["server", "set up", "model", "image", "theirs", "plain", "tuned", "theirs / plain", "theirs / tuned"]
_COLUMNS += ["requests/s", "RSS, MB", "remark"]
_LONGEST_REASON = 120


def peers(workload: Workload, rounds: int, requests: int) -> Section:
    """Compare the CPU of the same inference in other servers, with a plain pipeline and with the floor's."""
    folder = workload.folder.parent / "peers"
    for name in _MODELS:
        copy_model(workload.model(name).parent, folder / name, {})
        tune(workload, name, folder / f"{name}-tuned")
    rows: list[list[Cell]] = []
    with charioteer("--model-repository", str(folder)) as ours:
        own = {
            (model, size, kind): chariot(ours.ports["http"], f"{model}{suffix}", workload.image(model, size))
            for kind, suffix in (("plain", ""), ("tuned", "-tuned"))
            for model in _MODELS
            for size in IMAGE_SIZES
        }
        for name, pipeline_kind, model in product(PEERS, _PIPELINES, _MODELS):
            start: list[Cell] = [PEERS[name].title, _PIPELINES[pipeline_kind], model]
            try:
                graph = workload.model(model)
                with run_peer(PEERS[name], install(name), graph, folder.parent, pipeline_kind) as theirs:
                    for size in IMAGE_SIZES:
                        body = PEERS[name].body(workload.image(model, size).read_bytes())
                        request = BenchmarkRequest(theirs.ports["http"], PEERS[name].target, body)
                        costs = cost(
                            rounds,
                            theirs=measure_server(theirs, request, requests, _CONNECTIONS),
                            plain=measure_server(ours, own[model, size, "plain"], requests, _CONNECTIONS),
                            tuned=measure_server(ours, own[model, size, "tuned"], requests, _CONNECTIONS),
                        )
                        rows.append([*start, size, *_row(costs, theirs), None])
            except (RuntimeError, subprocess.CalledProcessError) as error:
                rows.append([*start, *[None] * (len(_COLUMNS) - len(start) - 1), _reason(error)])
            print(rows[-1], file=sys.stderr, flush=True)
    about = (
        "CPU milliseconds of a request of all processes of each server, measured in turns with ours: without settings, "
        f"and tuned as in [Tuned models](#tuned-models). {_CONNECTIONS} connections, one thread a call. *As "
        "documented* is a custom model from the server's documentation, with a plain pipeline of OpenCV and NumPy. It "
        "reads a detector's output as Ultralytics' example for ONNX Runtime does. *With our pipeline* uses the floor's "
        "pipeline and allocator, so that only the server differs. Ratios are the median of the rounds' ratios, with "
        "the lowest and highest."
    )
    return Section(title="Other servers", about=about, columns=_COLUMNS, rows=rows)


def _row(costs: dict[str, Cost], server: RunningServer) -> list[Cell]:
    load_result = costs["theirs"].load
    ratios = [show_ratio(costs["theirs"], costs[kind]) for kind in ("plain", "tuned")]
    return [*(result.median for result in costs.values()), *ratios, load_result.rate, server.memory()[0]]


def _reason(error: Exception) -> str:
    output = error.stderr.decode(errors="replace") if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = [line for line in output.splitlines() if line.strip()]
    return f"not measured: {lines[-1][:_LONGEST_REASON]}" if lines else "not measured"
