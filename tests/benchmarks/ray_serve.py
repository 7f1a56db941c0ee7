"""Measure the cost of Ray Serve on one machine: one process against an ingress and a model replica on Ray.

Both serve the fixture detector over HTTP, one after the other. Memory is the proportional set size of all their
processes. Usage, in an environment with the extra ray:
``python -m tests.benchmarks.ray_serve``.
"""

import argparse
import importlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.benchmarks.serving.load import LoadResult, send
from tests.benchmarks.serving.processes import ROOT, charioteer, family_of, memory_of
from tests.benchmarks.serving.tables.encodings import chariot
from tests.support.servers.ports import reserve_ports

MODEL = ROOT / "fixtures" / "models" / "detector" / "model.onnx"
IMAGE = ROOT / "fixtures" / "images" / "scene.jpg"
_CPUS = 8


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 8])
    options = parser.parse_args()
    print(f"detector, {IMAGE.name}, {IMAGE.stat().st_size / 1000:.0f} kB, {os.cpu_count()} cores")
    with charioteer("--model", str(MODEL)) as server:
        alone = measure_loads(server.ports["http"], options.requests, options.concurrency)
        print(f"one process: {server.memory()[1]:.0f} MB")
    with on_ray() as port:
        replicas = measure_loads(port, options.requests, options.concurrency)
        print(f"on Ray: {memory_of(family_of(os.getpid())[1:])[1]:.0f} MB, Ray's own processes included")
    for concurrency, single, ray in zip(options.concurrency, alone, replicas, strict=True):
        print(
            f"  concurrency {concurrency}: one process {single.rate:.0f}/s, p50 {single.percentile(0.5):.1f} ms; "
            f"on Ray {ray.rate:.0f}/s, p50 {ray.percentile(0.5):.1f} ms; ratio {single.rate / ray.rate:.1f}"
        )


def measure_loads(port: int, requests: int, concurrency: Sequence[int]) -> list[LoadResult]:
    """Run the load with each number of connections, one after the other."""
    request = chariot(port, "detector", IMAGE)
    send(request, 50, 4)
    return [send(request, requests, connections) for connections in concurrency]


@contextmanager
def on_ray() -> Iterator[int]:
    """Run the application on its own Ray cluster, one replica a deployment, and yield the port of its proxy."""
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"})
    ray: Any = importlib.import_module("ray")
    serve: Any = importlib.import_module("ray.serve")
    from app.plugins.ray.application import application

    (port,) = reserve_ports(1)
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error", "_temp_dir": folder}
        ray.init(num_cpus=_CPUS, object_store_memory=100_000_000, _node_ip_address="127.0.0.1", **quiet)
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"log_level": "ERROR"})
            single_replica = {"num_replicas": 1}
            serve.run(
                application({"model": str(MODEL), "ingress": single_replica, "models": single_replica}),
                name="charioteer",
            )
            yield port
        finally:
            serve.shutdown()
            ray.shutdown()


if __name__ == "__main__":
    main()
