"""Measure the server against the bare work, its protocols, its start and its memory."""

import statistics

import httpx

from tests.benchmarks.serving.cost import cost, measure_floor, measure_server
from tests.benchmarks.serving.load import BenchmarkRequest, send
from tests.benchmarks.serving.peer_servers import run_bare
from tests.benchmarks.serving.processes import ROOT, charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import CHARIOT, RAW_CHARIOT, chariot, encodings, questions, raw_chariot
from tests.benchmarks.serving.workload import Workload, copy_model

_CASES = (("small", "vga"), ("small", "hd"), ("medium", "vga"), ("medium", "hd"))
_CONCURRENCY = (1, 8, 64)


def overhead(workload: Workload, rounds: int, requests: int) -> Section:
    """Compare the CPU of a chariot-v2-kserve request with the same work in one thread without a server."""
    rows: list[list[Cell]] = []
    models = {model: workload.model(model) for model, _ in _CASES}
    folder = workload.folder.parent / "overhead"
    for model in models:
        copy_model(workload.folder / model, folder / model, {})
        copy_model(workload.folder / model, folder / f"{model}-opencv", {"preprocessing": {"antialias": False}})
    with charioteer("--model-repository", str(folder)) as server, run_bare(models) as bare_server:
        for model, image in _CASES:
            request = chariot(server.ports["http"], model, workload.images[image])
            opencv_request = chariot(server.ports["http"], f"{model}-opencv", workload.images[image])
            bare_request = BenchmarkRequest(bare_server.ports["http"], f"/{model}", request.body)
            labels = [_labels(warm_up_request) for warm_up_request in (opencv_request, bare_request)]
            assert labels[0] == labels[1], "the server and the floor do not do the same work"
            for connections in _CONCURRENCY:
                costs = cost(
                    rounds,
                    floor=measure_floor(workload.model(model), request.body, requests),
                    bare=measure_server(bare_server, bare_request, requests, connections),
                    server=measure_server(server, request, requests, connections),
                    opencv=measure_server(server, opencv_request, requests, connections),
                )
                load_result = costs["server"].load
                ratios = [costs[kind].median_ratio_to(costs["floor"]) for kind in ("bare", "server", "opencv")]
                medians = [result.median for result in costs.values()]
                rows.append([model, image, connections, *medians, *ratios, load_result.rate, *load_result.latency])
    about = (
        "CPU milliseconds of a request, of the floor, of a bare ASGI server and of our server, measured in turns. The "
        "floor is the same work in one thread without a server (`tests/benchmarks/serving/floor.py`). The bare server "
        "does the floor's work in a thread pool behind uvicorn, without limits, logs or metrics. Ratios are the "
        "median of the rounds' ratios. Requests a second and latencies are those of the last round of our server. The "
        "client runs on the same machine. *Server* resizes as Pillow does, the default of classifiers. *OpenCV* has "
        '`"antialias": false` and resizes as the floor and the bare server do.'
    )
    columns = ["model", "image", "connections", "floor", "bare ASGI", "server", "OpenCV"]
    columns += ["bare ASGI / floor", "server / floor", "OpenCV / floor"]
    columns += ["requests/s", "p50 ms", "p99 ms"]
    return Section(title="Server overhead", about=about, columns=columns, rows=rows)


def _labels(request: BenchmarkRequest) -> list[str]:
    url = f"http://127.0.0.1:{request.port}{request.target}"
    response = httpx.post(url, content=request.body, headers=request.headers, timeout=60).raise_for_status()
    (output,) = response.json()["outputs"]
    return [record["label"] for record in output["data"][0]]


def protocols(workload: Workload, rounds: int, requests: int) -> Section:
    """Compare the CPU of the same inference over every protocol."""
    image = workload.images["vga"]
    repository = ("--model-repository", str(workload.folder))
    with (
        charioteer(*repository) as server,
        charioteer(*repository, "--chariot-protocol", "chariot-v2") as chariot_v2_server,
    ):
        sent = encodings(server.ports, "small", image)
        measures = {name: measure_server(server, request, requests, 8) for name, request in sent.items()}
        raw = sent[RAW_CHARIOT] = raw_chariot(chariot_v2_server.ports["http"], "small", image)
        costs = cost(rounds, **measures, **{RAW_CHARIOT: measure_server(chariot_v2_server, raw, requests, 8)})
    base = costs[CHARIOT].median
    rows: list[list[Cell]] = [
        [name, len(sent[name].body), result.median, result.median / base]
        for name, result in sorted(costs.items(), key=lambda pair: pair[1].median)
    ]
    about = (
        "CPU milliseconds of a request, and the ratio to JSON of chariot-v2-kserve. Small model, VGA image, 8 "
        "connections."
    )
    columns = ["protocol and encoding", "body, bytes", "server", f"ratio to {CHARIOT}"]
    return Section(title="Protocols and encodings", about=about, columns=columns, rows=rows)


def chat(workload: Workload, rounds: int, requests: int) -> Section:
    """Compare the CPU of a chat completion with that of the same question over Chariot's protocol."""
    del workload
    with charioteer("--model", str(ROOT / "fixtures" / "models" / "vlm")) as server:
        requests_by_name = questions(server.ports["http"], "vlm", ROOT / "fixtures" / "images" / "shape.jpg")
        costs = cost(
            rounds, **{name: measure_server(server, request, requests, 1) for name, request in requests_by_name.items()}
        )
    rows: list[list[Cell]] = [
        [name, result.median, result.median_ratio_to(costs[CHARIOT])] for name, result in costs.items()
    ]
    about = (
        "CPU milliseconds of the same answer to a question about an image, by the fixture model, in turns on one "
        "connection. The ratio is the median of the rounds' ratios."
    )
    columns = ["protocol", "server", f"ratio to {CHARIOT}"]
    return Section(title="Chat completions", about=about, columns=columns, rows=rows)


def start(workload: Workload, rounds: int) -> Section:
    """Measure the time until ready, and the memory."""
    rows: list[list[Cell]] = []
    arguments_by_name = {
        "the fixture models": (),
        "small": ("--model", str(workload.folder / "small")),
        "medium": ("--model", str(workload.folder / "medium")),
    }
    for name, arguments in arguments_by_name.items():
        ready: list[float] = []
        idle = busy = (0.0, 0.0)
        for round_number in range(rounds):
            with charioteer(*arguments) as server:
                ready.append(server.ready_seconds)
                idle = server.memory()
                if round_number == rounds - 1 and arguments:
                    send(chariot(server.ports["http"], name, workload.images["vga"]), 500, 8)
                    busy = server.memory()
        loaded: list[Cell] = [*busy] if arguments else [None, None]
        rows.append([name, statistics.median(ready), *idle, *loaded])
    about = (
        "Median seconds from the start of the process to the first 200 of `/ready`. Megabytes of resident (RSS) "
        "and proportional (PSS) set size, idle and after 500 requests."
    )
    columns = ["models", "ready, s", "idle RSS", "idle PSS", "RSS after", "PSS after"]
    return Section(title="Start and memory", about=about, columns=columns, rows=rows)
