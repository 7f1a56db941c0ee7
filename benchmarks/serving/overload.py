"""Three times as many requests as can be answered."""

import os

from benchmarks.serving.encodings import chariot
from benchmarks.serving.load import offer, send
from benchmarks.serving.processes import charioteer
from benchmarks.serving.section import Cell, Section
from benchmarks.serving.workload import Workload

__all__ = ("overload",)

_SETTINGS = {
    "as it comes: 128 may wait": (),
    "--max-waiting 1": ("--max-waiting", "1"),
    "--max-queue-seconds 0.002": ("--max-queue-seconds", "0.002"),
}


def overload(workload: Workload, seconds: float, requests: int) -> Section:
    """Goodput and latency of those that are admitted, at three times the capacity.

    The server has one core and the load another, so that the load does not take from the capacity.
    """
    rows: list[list[Cell]] = []
    cores = sorted(os.sched_getaffinity(0))
    capacity = 0.0
    for name, arguments in _SETTINGS.items():
        os.sched_setaffinity(0, cores[:1])
        with charioteer("--model", str(workload.folder / "medium"), "--workers", "1", *arguments) as server:
            os.sched_setaffinity(0, cores[1:] or cores)
            shot = chariot(server.ports["http"], "medium", workload.pictures["vga"])
            send(shot, 100, 1)
            unloaded = send(shot, requests, 1)
            if not capacity:
                capacity = send(shot, requests, 2).rate
            took = offer(shot, 3 * capacity, seconds)
            answers = sum(took.statuses.values())
            refused = took.statuses.get(429, 0)
            p99 = took.percentile(0.99)
            rows.append(
                [
                    name,
                    capacity,
                    unloaded.percentile(0.99),
                    took.rate / capacity,
                    p99,
                    p99 / unloaded.percentile(0.99),
                    refused / answers,
                    answers - refused - len(took.milliseconds),
                ]
            )
        os.sched_setaffinity(0, cores)
    about = (
        "The medium model and the VGA picture; the server on one core with one worker, the load on another. Capacity "
        "is what two connections get in a closed loop; then three times as many requests a second are offered, "
        "however many are answered. Latencies are in milliseconds, of admitted requests; whoever is refused gets 429 "
        "at once."
    )
    columns = [
        "settings",
        "capacity, 1/s",
        "unloaded p99",
        "goodput / capacity",
        "p99 at 3 x",
        "p99 / unloaded p99",
        "refused",
        "lost",
    ]
    return Section(title="Overload", about=about, columns=columns, rows=rows)
