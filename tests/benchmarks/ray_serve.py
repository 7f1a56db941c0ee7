"""What Ray Serve costs on one machine: the same requests to one process, and to an ingress and a model replica on Ray.

Both answer over their HTTP port, one after the other, the detector of the fixtures, in this run. Memory is the
proportional set size of all processes that belong to it. Usage, in an environment with the extra ray:
``python -m tests.benchmarks.ray_serve``.
"""

import argparse
import importlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.serving.encodings import chariot
from tests.benchmarks.serving.load import Took, send
from tests.benchmarks.serving.processes import ROOT, charioteer, free_port

MODEL = ROOT / "fixtures" / "models" / "detector" / "model.onnx"
PICTURE = ROOT / "fixtures" / "images" / "scene.jpg"
_PSS = re.compile(r"^Pss: +(\d+) kB", re.MULTILINE)
_CPUS = 8


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 8])
    options = parser.parse_args()
    print(f"detector, {PICTURE.name}, {PICTURE.stat().st_size / 1000:.0f} kB, {os.cpu_count()} cores")
    with charioteer("--model", str(MODEL)) as server:
        alone = measured(server.ports["http"], options.requests, options.concurrency)
        print(f"one process: {server.memory()[1]:.0f} MB")
    with on_ray() as port:
        replicas = measured(port, options.requests, options.concurrency)
        print(f"on Ray: {sum(map(megabytes, descendants(os.getpid()))):.0f} MB, Ray's own processes included")
    for concurrency, one, ray in zip(options.concurrency, alone, replicas, strict=True):
        print(
            f"  concurrency {concurrency}: one process {one.rate:.0f}/s, p50 {one.percentile(0.5):.1f} ms; "
            f"on Ray {ray.rate:.0f}/s, p50 {ray.percentile(0.5):.1f} ms; ratio {one.rate / ray.rate:.1f}"
        )


def measured(port: int, requests: int, concurrency: Sequence[int]) -> list[Took]:
    """Run the load with each number of connections, one after the other."""
    shot = chariot(port, "detector", PICTURE)
    send(shot, 50, 4)
    return [send(shot, requests, connections) for connections in concurrency]


@contextmanager
def on_ray() -> Iterator[int]:
    """The application on a Ray of its own, one replica of each deployment, and the port of its proxy."""
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"})
    ray: Any = importlib.import_module("ray")
    serve: Any = importlib.import_module("ray.serve")
    from app.assembly.ray_serve import application

    port = free_port()
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
