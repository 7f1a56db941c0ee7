"""Measure the cost of Ray Serve on one machine: one process against an ingress and a model replica on Ray.

Both serve the fixture detector over HTTP, one after the other. Memory is the proportional set size of all their
processes. Usage: ``python -m tests.benchmarks.ray_serve`` (minutes; the first time it installs Ray).
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.serving.load import LoadResult, send
from tests.benchmarks.serving.processes import ROOT, charioteer, family_of, memory_of
from tests.benchmarks.serving.tables.encodings import chariot
from tests.plugins.ray.driver import SCENE, start_ray

MODEL = ROOT / "fixtures" / "models" / "detector" / "model.onnx"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 8])
    options = parser.parse_args()
    print(f"detector, {SCENE.name}, {SCENE.stat().st_size / 1000:.0f} kB, {os.cpu_count()} cores")
    with charioteer("--model", str(MODEL)) as server:
        alone = measure_loads(server.ports["http"], options.requests, options.concurrency)
        print(f"one process: {server.memory()[1]:.0f} MB")
    with tempfile.TemporaryDirectory() as folder:
        (project := Path(folder) / "project").mkdir()
        with start_ray(project) as ray:
            ray.deploy({"model": str(MODEL), "ingress": {"num_replicas": 1}, "models": {"num_replicas": 1}})
            replicas = measure_loads(ray.client.base_url.port or 0, options.requests, options.concurrency)
            memory = memory_of(family_of(ray.process.pid)[1:])[1]
    print(f"on Ray: {memory:.0f} MB, Ray's own processes included")
    for concurrency, single, other in zip(options.concurrency, alone, replicas, strict=True):
        print(
            f"  concurrency {concurrency}: one process {single.rate:.0f}/s, p50 {single.percentile(0.5):.1f} ms; "
            f"on Ray {other.rate:.0f}/s, p50 {other.percentile(0.5):.1f} ms; ratio {single.rate / other.rate:.1f}"
        )


def measure_loads(port: int, requests: int, concurrency: Sequence[int]) -> list[LoadResult]:
    """Run the load with each number of connections, one after the other."""
    request = chariot(port, "detector", SCENE)
    send(request, 50, 4)
    return [send(request, requests, connections) for connections in concurrency]


if __name__ == "__main__":
    main()
