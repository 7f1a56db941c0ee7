"""What Ray Serve costs on one machine: the same requests to one process, and to an ingress and a model replica on Ray.

Both answer over their HTTP port, one after the other, the detector of the fixtures, in this run. Memory is the
proportional set size of all processes that belong to it. Usage, in an environment with the extra ray:
``python -m benchmarks.ray_serve``.
"""

import argparse
import importlib
import os
import re
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.overhead import MODEL, PICTURE, picture_size, post, request_body, server

_PSS = re.compile(r"^Pss: +(\d+) kB", re.MULTILINE)
_CPUS = 8


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200, help="over each connection")
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 8])
    options = parser.parse_args()
    body = request_body()
    print(f"detector, {PICTURE.name} {picture_size()}, body {len(body) / 1000:.0f} kB, {os.cpu_count()} cores")
    alone: dict[int, tuple[float, float]] = {}
    with server() as (process, port):
        post(port, body, 50)
        print(f"one process: {megabytes(process.pid):.0f} MB")
        for concurrency in options.concurrency:
            alone[concurrency] = measured(port, body, options.requests, concurrency)
    with on_ray() as port:
        post(port, body, 50)
        print(f"on Ray: {sum(map(megabytes, descendants(os.getpid()))):.0f} MB, Ray's own processes included")
        for concurrency, (rate, milliseconds) in alone.items():
            ray_rate, ray_milliseconds = measured(port, body, options.requests, concurrency)
            print(
                f"  concurrency {concurrency}: one process {rate:.0f}/s, p50 {milliseconds:.1f} ms; "
                f"on Ray {ray_rate:.0f}/s, p50 {ray_milliseconds:.1f} ms; ratio {rate / ray_rate:.1f}",
                flush=True,
            )


def measured(port: int, body: bytes, requests: int, concurrency: int) -> tuple[float, float]:
    """Requests per second over so many connections, and the median milliseconds of one."""
    seconds: list[float] = []

    def send() -> None:
        for _ in range(requests):
            started = time.perf_counter()
            post(port, body, 1)
            seconds.append(time.perf_counter() - started)

    threads = [threading.Thread(target=send) for _ in range(concurrency)]
    started = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return len(seconds) / (time.perf_counter() - started), statistics.median(seconds) * 1000


@contextmanager
def on_ray() -> Iterator[int]:
    """The application on a Ray of its own, one replica of each deployment, and the port of its proxy."""
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"})
    ray: Any = importlib.import_module("ray")
    serve: Any = importlib.import_module("ray.serve")
    from app.assembly.ray_serve import application

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error", "_temp_dir": folder}
        ray.init(num_cpus=_CPUS, object_store_memory=100_000_000, _node_ip_address="127.0.0.1", **quiet)
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"log_level": "ERROR"})
            one = {"num_replicas": 1}
            serve.run(application({"model": str(MODEL), "ingress": one, "models": one}), name="charioteer")
            yield port
        finally:
            serve.shutdown()
            ray.shutdown()


def descendants(process: int) -> set[int]:
    """The processes that a process has started, and those that they have."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: set[int] = set()
    rest = {process}
    while rest:
        rest = {child for child, parent in parents.items() if parent in rest} - found
        found |= rest
    return found


def megabytes(process: int) -> float:
    """Proportional set size; nothing for a process that has ended."""
    try:
        return int(_PSS.findall(Path(f"/proc/{process}/smaps_rollup").read_text())[0]) * 1024 / 1e6
    except (OSError, IndexError):
        return 0.0


if __name__ == "__main__":
    main()
