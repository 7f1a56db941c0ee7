"""The server beside the work itself; its protocols beside each other; its start and its memory."""

import statistics
from collections.abc import Callable
from functools import partial

from tests.benchmarks.serving.cost import cost, floor_of, server_of
from tests.benchmarks.serving.encodings import CHARIOT, RAW_CHARIOT, chariot, encodings, raw_chariot
from tests.benchmarks.serving.load import send
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.workload import Workload

__all__ = ("leak", "overhead", "protocols", "start")

_CASES = (("small", "vga"), ("small", "hd"), ("medium", "vga"), ("medium", "hd"))
_CONCURRENCY = (1, 8, 64)


def overhead(workload: Workload, rounds: int, requests: int) -> Section:
    """CPU of a request of chariot-v2-kserve, and of the same work in one thread without a server."""
    rows: list[list[Cell]] = []
    with charioteer("--model-repository", str(workload.folder)) as server:
        for model, picture in _CASES:
            shot = chariot(server.ports["http"], model, workload.pictures[picture])
            send(shot, 50, 4)
            for connections in _CONCURRENCY:
                found = cost(
                    rounds,
                    floor=floor_of(workload.model(model), shot.body, requests),
                    server=server_of(server, shot, requests, connections),
                )
                took = found["server"].took
                assert took is not None
                ratio = statistics.median(
                    high / low
                    for low, high in zip(found["floor"].milliseconds, found["server"].milliseconds, strict=True)
                )
                latency = [took.percentile(share) for share in (0.5, 0.99)]
                medians = [found["floor"].median, found["server"].median]
                rows.append([model, picture, connections, *medians, ratio, took.rate, *latency])
    about = (
        "CPU milliseconds of a request, of the floor and of the server's process, measured in turns. The floor is "
        "the same work in one thread without a server (`tests/benchmarks/serving/floor.py`). The ratio is the "
        "median of the rounds' ratios. Requests a second and latencies are those of the last round. The client "
        "runs on the same machine."
    )
    columns = ["model", "image", "connections", "floor", "server", "ratio", "requests/s", "p50 ms", "p99 ms"]
    return Section(title="Server overhead", about=about, columns=columns, rows=rows)


def protocols(workload: Workload, rounds: int, requests: int) -> Section:
    """CPU of the same inference by every protocol."""
    picture = workload.pictures["vga"]
    repository = ("--model-repository", str(workload.folder))
    with (
        charioteer(*repository) as server,
        charioteer(*repository, "--chariot-protocol", "chariot-v2") as lean,
    ):
        shots = {name: (server, shot) for name, shot in encodings(server.ports, "small", picture).items()}
        shots[RAW_CHARIOT] = (lean, raw_chariot(lean.ports["http"], "small", picture))
        for _, shot in shots.values():
            send(shot, 50, 4)
        ways: dict[str, Callable[[], object]] = {
            name: server_of(running, shot, requests, 8) for name, (running, shot) in shots.items()
        }
        found = cost(rounds, **ways)  # pyright: ignore[reportArgumentType]
    base = found[CHARIOT].median
    rows: list[list[Cell]] = [
        [name, len(shots[name][1].body), spread.median, spread.median / base]
        for name, spread in sorted(found.items(), key=lambda pair: pair[1].median)
    ]
    about = (
        "CPU milliseconds of a request, and the ratio to JSON of chariot-v2-kserve. Small model, VGA image, 8 "
        "connections."
    )
    columns = ["protocol and encoding", "body, bytes", "server", f"ratio to {CHARIOT}"]
    return Section(title="Protocols and encodings", about=about, columns=columns, rows=rows)


def start(workload: Workload, rounds: int) -> Section:
    """How long until ready, and what memory that takes."""
    rows: list[list[Cell]] = []
    served = {
        "the fixture models": (),
        "small": ("--model", str(workload.folder / "small")),
        "medium": ("--model", str(workload.folder / "medium")),
    }
    for name, arguments in served.items():
        ready: list[float] = []
        idle = busy = (0.0, 0.0)
        for turn in range(rounds):
            with charioteer(*arguments) as server:
                ready.append(server.ready_seconds)
                idle = server.memory()
                if turn == rounds - 1 and arguments:
                    send(chariot(server.ports["http"], name, workload.pictures["vga"]), 500, 8)
                    busy = server.memory()
        loaded: list[Cell] = [*busy] if arguments else [None, None]
        rows.append([name, statistics.median(ready), *idle, *loaded])
    about = (
        "Median seconds from the start of the process to the first 200 of `/ready`. Megabytes of resident (RSS) "
        "and proportional (PSS) set size, idle and after 500 requests."
    )
    columns = ["models", "ready, s", "idle RSS", "idle PSS", "RSS after", "PSS after"]
    return Section(title="Start and memory", about=about, columns=columns, rows=rows)


def leak(workload: Workload, requests: int) -> Section:
    """Whether memory grows with the number of requests."""
    rows: list[list[Cell]] = []
    with charioteer("--model", str(workload.folder / "small")) as server:
        shots = encodings(server.ports, "small", workload.pictures["vga"])
        load = partial(send, connections=8)
        share = requests // 10
        for shot in shots.values():
            load(shot, share // len(shots))
        before = server.memory()[0]
        for turn in range(10):
            load(list(shots.values())[turn % len(shots)], share)
            rows.append(
                [(turn + 1) * share, server.memory()[0], (server.memory()[0] - before) * 1e6 / ((turn + 1) * share)]
            )
    about = (
        f"Resident megabytes while {requests:,} requests of all protocols are answered, after {share:,} requests of "
        "warm-up. Bytes a request count from there."
    )
    return Section(title="Memory growth", about=about, columns=["requests", "RSS, MB", "bytes a request"], rows=rows)
