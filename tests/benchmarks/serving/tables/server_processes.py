"""Compare one server process with several that share the processors."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.benchmarks.serving.load import flood
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload

_CONNECTIONS = 16


def server_processes(workload: Workload, seconds: float) -> Section:
    """Measure answers a second and memory of one process, and of several: one for two cores, but at least two."""
    cores = len(os.sched_getaffinity(0))
    rows: list[list[Cell]] = []
    for model in workload.megaflops:
        for processes in (1, max(2, cores // 2)):
            rates, memory = _measure(workload, model, processes, max(1, cores // processes), seconds)
            rows.append([model, processes, max(1, cores // processes), sum(rates), memory])
    about = (
        f"The VGA image over {_CONNECTIONS} connections, spread evenly over the processes, as a proxy does. The load "
        "shares the cores. Memory is the proportional set size (PSS) of all processes, idle."
    )
    columns = ["model", "processes", "workers of each", "answers, 1/s", "memory, MB"]
    return Section(title="Several processes", about=about, columns=columns, rows=rows)


def _measure(
    workload: Workload, model: str, processes: int, workers: int, seconds: float
) -> tuple[Sequence[float], float]:
    arguments = ("--model", str(workload.folder / model), "--workers", str(workers))
    with ExitStack() as stack:
        servers = [stack.enter_context(charioteer(*arguments)) for _ in range(processes)]
        memory = sum(server.memory()[1] for server in servers)

        def load(port: int) -> float:
            request = chariot(port, model, workload.images["vga"])
            flood(request, 4, 1)
            return flood(request, _CONNECTIONS // processes, seconds).rate

        with ThreadPoolExecutor(processes) as pool:
            return list(pool.map(load, [server.ports["http"] for server in servers])), memory
