"""Compare the goodput of checkouts under overload, in turns: ``python -m tests.benchmarks.goodput CHECKOUT ...``.

All of them run with this Python. The server has the first core, the load all others.
"""

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.benchmarks.serving.flood import flood
from tests.benchmarks.serving.processes import ROOT, charioteer
from tests.benchmarks.serving.tables.overload import CONNECTIONS, MODEL, request_for
from tests.benchmarks.serving.workload import Workload, make_workload

_TURNS = 5
_TIMES = 10
_SECONDS = 10


def main() -> None:
    """Print capacity and goodput of each turn, then the medians."""
    checkouts = [Path(argument).resolve() for argument in sys.argv[1:]] or [ROOT]
    goodput: dict[Path, list[float]] = {checkout: [] for checkout in checkouts}
    print("| checkout | capacity, 1/s | goodput, 1/s |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload(Path(folder))
        rate = 0.0
        for turn in range(_TURNS):
            # The order alternates, because the machine may become slower or faster.
            for checkout in checkouts[:: -1 if turn % 2 else 1]:
                capacity, answered = _measure(checkout, workload, rate)
                # All checkouts get the same load.
                rate = rate or _TIMES * capacity
                goodput[checkout].append(answered)
                print(f"| {checkout.name} | {capacity:.1f} | {answered:.1f} |", flush=True)
    first = median(goodput[checkouts[0]])
    for checkout, values in goodput.items():
        print(f"{checkout.name}: median {median(values):.1f}, {median(values) / first:.2f} of {checkouts[0].name}")


def _measure(checkout: Path, workload: Workload, rate: float) -> tuple[float, float]:
    """Return the answers a second of four connections, and those of an open load of `rate`."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    try:
        with charioteer("--model", str(workload.folder / MODEL), "--workers", "1", folder=checkout) as server:
            os.sched_setaffinity(0, cores[1:] or cores)
            port, request = server.ports["http"], request_for(workload, server)
            flood(port, request, 4, 2)
            capacity = flood(port, request, 4, _SECONDS / 2).goodput
            return capacity, flood(port, request, CONNECTIONS, _SECONDS, rate or _TIMES * capacity).goodput
    finally:
        os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    main()
