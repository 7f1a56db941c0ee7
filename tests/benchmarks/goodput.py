"""Compare the goodput of checkouts under overload, in turns: ``python -m tests.benchmarks.goodput CHECKOUT ...``.

All of them run with this Python. The servers share the first core, the load has all others. Turns are short,
because machines become slower and faster within seconds.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.benchmarks.serving.load import flood
from tests.benchmarks.serving.processes import ROOT, RunningServer, charioteer
from tests.benchmarks.serving.tables.overload import CONNECTIONS, MODEL, measure, request_for
from tests.benchmarks.serving.workload import Workload, make_workload

_TURNS = 16
_TIMES = 10
_SECONDS = 4
_COLUMNS = ("capacity, 1/s", "goodput, 1/s", "capacity, CPU ms an answer", "goodput, CPU ms an answer")


def main() -> None:
    """Print the medians of each checkout, and the median over all turns of its ratio to the first one."""
    checkouts = [Path(argument).resolve() for argument in sys.argv[1:]] or [ROOT]
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        workload = make_workload(Path(folder))
        os.sched_setaffinity(0, cores[:1])
        running = {
            checkout: servers.enter_context(
                charioteer("--model", str(workload.folder / MODEL), "--workers", "1", folder=checkout)
            )
            for checkout in checkouts
        }
        os.sched_setaffinity(0, cores[1:] or cores)
        turns = _measure(running, workload)
    for column, name in enumerate(_COLUMNS):
        for checkout in checkouts:
            values = [turn[checkout][column] for turn in turns]
            ratio = median(turn[checkout][column] / turn[checkouts[0]][column] for turn in turns)
            print(f"{name}: {checkout.name}: median {median(values):.1f}, {ratio:.2f} of {checkouts[0].name}")


def _measure(running: Mapping[Path, RunningServer], workload: Workload) -> list[dict[Path, tuple[float, ...]]]:
    """Return the values of all columns, by turn and checkout."""
    requests = {checkout: request_for(workload, server) for checkout, server in running.items()}
    for request in requests.values():
        flood(request, 4, 2)
    rate = 0.0
    turns: list[dict[Path, tuple[float, ...]]] = []
    for number in range(_TURNS):
        turn: dict[Path, tuple[float, ...]] = {}
        # The order alternates, so that no checkout is always the first after a pause.
        for checkout in list(running)[:: -1 if number % 2 else 1]:
            server, request = running[checkout], requests[checkout]
            capacity, cost = measure(server, request, 4, _SECONDS)
            # All checkouts get the same load.
            rate = rate or _TIMES * capacity.rate
            goodput, overloaded_cost = measure(server, request, CONNECTIONS, _SECONDS, rate)
            turn[checkout] = (capacity.rate, goodput.rate, 1000 * cost, 1000 * overloaded_cost)
            print(checkout.name, *(f"{value:.1f}" for value in turn[checkout]), flush=True)
        turns.append(turn)
    return turns


if __name__ == "__main__":
    main()
