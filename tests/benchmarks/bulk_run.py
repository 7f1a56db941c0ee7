"""Measure ``charioteer run``: its speed beside other programs, and its memory.

- speed: beside a bare loop and, with --ray, a pipeline as in Ray Data's documentation. Each program runs on two
  folders of copies of a photograph; the difference leaves out the start. CPU time is that of all its processes.
- memory: the peak of the process for two numbers of tiny images.

    python -m tests.benchmarks.bulk_run [speed] [memory] [--images 1000] [--rounds 2] [--tiny 200000] [--ray]
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import msgspec

from tests.benchmarks.serving.processes import cpu_of_family
from tests.benchmarks.serving.section import Section, as_markdown
from tests.benchmarks.serving.workload import Workload, make_workload
from tests.installed.environments import ray_environment
from tests.support.servers.server_process import ROOT

_START = 200
"""Images of the smaller folder."""
_SAMPLE_SECONDS = 0.1
_TINY_SIDE = 16
_FOLDER_IMAGES = 1000


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="speed, memory; both by default")
    parser.add_argument("--images", type=int, default=1000, help="images of the speed")
    parser.add_argument("--rounds", type=int, default=2, help="every other round has the programs in reverse order")
    parser.add_argument("--tiny", type=int, default=200_000, help="images of the memory")
    parser.add_argument("--ray", action="store_true", help="install Ray, and measure it too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "workload").mkdir()
        workload = make_workload(folder / "workload")
        sections = {
            "speed": lambda: speed(folder, workload, options.images, options.rounds, ray=options.ray),
            "memory": lambda: memory(folder, workload, options.tiny),
        }
        for part in options.parts or sections:
            print(as_markdown(sections[part]()), flush=True)


def speed(folder: Path, workload: Workload, images: int, rounds: int, *, ray: bool) -> Section:
    """Return the table of images per second and CPU time an image."""
    photo, model = workload.images["vga"].read_bytes(), workload.model("medium")
    for count in (_START, _START + images):
        write_copies(folder / str(count), photo, count)
    own = ["-m", "tests.benchmarks.bulk_programs"]
    programs: dict[str, Sequence[str]] = {
        "bare loop in threads": [sys.executable, *own, "loop", str(model), "{images}", "{output}"],
        "charioteer run": run_command(model),
        "charioteer run --batch 8": [*run_command(model), "--batch", "8"],
    }
    if ray:
        python = str(ray_environment().python)
        programs["Ray Data as documented"] = [python, *own, "ray", str(model), "{images}", "{output}"]
        programs["charioteer run --ray local"] = [python, *run_command(model)[1:], "--ray", "local"]
    costs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in programs}
    for number in range(rounds):
        for name in reversed(programs) if number % 2 else programs:
            few, many = (
                cost(programs[name], folder / str(count), folder / "output") for count in (_START, _START + images)
            )
            rate, cpu = images / (many.seconds - few.seconds), 1000 * (many.cpu - few.cpu) / images
            print(f"{name}: {rate:.1f} images/s, {cpu:.2f} ms of CPU; {few.seconds:.1f} s for {_START}", flush=True)
            costs[name].append((rate, cpu, few.seconds))
    medians = {
        name: [statistics.median(values) for values in zip(*found, strict=True)] for name, found in costs.items()
    }
    floor = medians["bare loop in threads"][1]
    rows = [(name, rate, cpu, cpu / floor, seconds) for name, (rate, cpu, seconds) in medians.items()]
    cores = len(os.sched_getaffinity(0))
    return Section(
        title="Speed",
        about=f"MobileNetV2, VGA photographs, {cores} cores, median of {rounds} rounds in alternating order.",
        columns=("program", "images/s", "CPU ms an image", "CPU / loop", f"s for {_START}, with the start"),
        rows=rows,
    )


def memory(folder: Path, workload: Workload, images: int) -> Section:
    """Return the table of the process's peak for a tenth of the images, and for all."""
    rows: list[tuple[int, float, float]] = []
    photo: Any = cv2.imread(str(workload.images["vga"]))
    tiny = cv2.imencode(".jpg", cv2.resize(photo, (_TINY_SIDE, _TINY_SIDE)))[1].tobytes()
    for count in (images // 10, images):
        write_copies(folder / "tiny", tiny, count)
        found = cost(run_command(workload.model("small")), folder / "tiny", folder / "output")
        rows.append((count, count / found.seconds, found.peak_megabytes))
    return Section(
        title="Memory",
        about=f"The small network, images of {_TINY_SIDE}x{_TINY_SIDE} pixels.",
        columns=("images", "images/s with the start", "peak RSS, MB"),
        rows=rows,
    )


def write_copies(folder: Path, image: bytes, count: int) -> None:
    """Write copies of an image, 1,000 to a subfolder, that are links to the first of it."""
    for index in range(count):
        path = folder / f"{index // _FOLDER_IMAGES:03}" / f"{index:06}.jpg"
        if path.exists():
            continue
        if index % _FOLDER_IMAGES:
            path.hardlink_to(path.with_name(f"{index // _FOLDER_IMAGES * _FOLDER_IMAGES:06}.jpg"))
        else:
            path.parent.mkdir(parents=True)
            path.write_bytes(image)


def run_command(model: Path) -> Sequence[str]:
    """Return ``charioteer run`` for a model."""
    return [sys.executable, "-m", "charioteer", "run", "{images}", "--model", str(model.parent), "--to", "{output}"]


def start(program: Sequence[str], images: Path, output: Path) -> "subprocess.Popen[bytes]":
    """Start a program on a folder of images."""
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": f"{ROOT}:{ROOT / 'app' / 'public_api'}"}
    command = [part.format(images=images, output=output) for part in program]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Cost(msgspec.Struct, frozen=True):
    """The CPU seconds of all processes of a program, its duration, and the peak memory of its first process."""

    cpu: float
    seconds: float
    peak_megabytes: float


def cost(program: Sequence[str], images: Path, output: Path) -> Cost:
    """Run a program to its end. Raise SystemExit if it fails."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    started, used, peak = time.monotonic(), 0.0, 0.0
    pause = threading.Event()
    with start(program, images, output / "answers") as process:
        while process.poll() is None:
            used = max(used, cpu_of_family(process.pid))
            peak = max(peak, peak_of(process.pid))
            pause.wait(_SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"{' '.join(program)}: exit status {process.returncode}")
    return Cost(used, time.monotonic() - started, peak)


def peak_of(process: int) -> float:
    """Return the peak of a process's resident memory in megabytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1000 if found else 0.0


if __name__ == "__main__":
    main()
