"""Measure ``charioteer run`` beside a bare loop, and beside a pipeline of Ray Data as its documentation writes it.

Each runs as a process of its own on two folders of copies of a photograph. The difference between both leaves out the
start. CPU time is that of all its processes. Ray needs an interpreter with the extras ray and parquet:

    python -m tests.benchmarks.bulk_run [--images 2000] [--rounds 3] [--ray PYTHON]
"""

import argparse
import importlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import onnxruntime
from numpy.typing import NDArray

from app.core.server.process_setup import configure_process
from tests.benchmarks.serving.floor import Chain, open_session
from tests.benchmarks.serving.section import Section, as_markdown
from tests.benchmarks.serving.workload import make_workload
from tests.support.servers.server_process import ROOT

_START = 200
"""Images of the smaller folder."""
_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 0.1


def main() -> None:
    """Measure all programs, or be one of the two that are not Charioteer's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", default="", help="interpreter that has Ray")
    parser.add_argument("--program", nargs=4, metavar=("NAME", "MODEL", "IMAGES", "OUTPUT"))
    options = parser.parse_args()
    if options.program:
        name, *paths = options.program
        {"loop": bare_loop, "ray": ray_pipeline}[name](*map(Path, paths))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(as_markdown(measure(Path(folder), options.images, options.rounds, options.ray)))


def measure(folder: Path, images: int, rounds: int, ray: str) -> Section:
    """Return the table."""
    (folder / "workload").mkdir()
    workload = make_workload(folder / "workload")
    photo = workload.images["vga"].read_bytes()
    for count in (_START, _START + images):
        for index in range(count):
            path = folder / str(count) / f"{index // 1000:03}" / f"{index:06}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(photo)
    model = workload.model("medium")
    run = ["-m", "charioteer", "run", "{images}", "--model", str(model.parent), "--to", "{output}"]
    own = ["-m", "tests.benchmarks.bulk_run", "--program"]
    programs: dict[str, Sequence[str]] = {
        "bare loop in threads": [sys.executable, *own, "loop", str(model), "{images}", "{output}"],
        "charioteer run": [sys.executable, *run],
        "charioteer run --batch 8": [sys.executable, *run, "--batch", "8"],
    }
    if ray:
        programs["Ray Data as documented"] = [ray, *own, "ray", str(model), "{images}", "{output}"]
        programs["charioteer run --ray local"] = [ray, *run, "--ray", "local"]
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            (cpu, seconds), (more_cpu, more_seconds) = (
                cost(program, folder / str(count), folder / "output") for count in (_START, _START + images)
            )
            print(f"{name}: {cpu:.1f} and {more_cpu:.1f} s of CPU, {seconds:.1f} and {more_seconds:.1f} s", flush=True)
            costs[name].append((1000 * (more_cpu - cpu) / images, images / (more_seconds - seconds)))
    floor = statistics.median(cpu for cpu, _ in costs["bare loop in threads"])
    rows = [
        (
            name,
            statistics.median(rate for _, rate in found),
            cpu := statistics.median(cpu for cpu, _ in found),
            cpu / floor,
        )
        for name, found in costs.items()
    ]
    about = f"MobileNetV2, VGA photographs, {len(os.sched_getaffinity(0))} cores, median of {rounds} rounds."
    columns = ("program", "images/s", "CPU ms an image", "CPU beside the loop")
    return Section(title="Many images", about=about, columns=columns, rows=rows)


def cost(program: Sequence[str], images: Path, output: Path) -> tuple[float, float]:
    """Run a program; return the seconds of CPU of all its processes, and the seconds that it took."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    command = [part.format(images=images, output=output / "answers") for part in program]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": f"{ROOT}:{ROOT / 'app' / 'public_api'}"}
    started = time.monotonic()
    used: dict[int, float] = {}
    pause = threading.Event()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            used |= cpu_of_tree(process.pid)
            pause.wait(_SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    return sum(used.values()), time.monotonic() - started


def cpu_of_tree(root: int) -> Mapping[int, float]:
    """Return the seconds of CPU of a process and its descendants, by process id."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    tree = {root}
    while added := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= added
    return {process: seconds[process] for process in tree & seconds.keys()}


def bare_loop(model: Path, images: Path, output: Path) -> None:
    """Answer each image by OpenCV and ONNX Runtime in one thread for each core, and write JSON lines."""
    configure_process()
    chain = Chain(model)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, output.open("wb") as file:
        for records in pool.map(lambda path: chain.answer(path.read_bytes()), sorted(images.rglob("*.jpg"))):
            file.write(msgspec.json.encode(records) + b"\n")


def ray_pipeline(model: Path, images: Path, output: Path) -> None:
    """Answer each image as in "Batch inference" of Ray Data's documentation, with ONNX Runtime as the framework."""
    ray: Any = importlib.import_module("ray")
    data: Any = importlib.import_module("ray.data")

    class Predictor:
        def __init__(self) -> None:
            self.session: Any = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

        def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, Any]:
            name = self.session.get_inputs()[0].name
            scores = np.concatenate([self.session.run(None, {name: image[None]})[0] for image in batch["image"]])
            return {"path": batch["path"], "label": scores.argmax(axis=1), "score": scores.max(axis=1)}

    side = open_session(model)[2]

    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        resized = cv2.resize(row["image"], (side, side))
        return {"path": row["path"], "image": resized.transpose(2, 0, 1).astype(np.float32) / 255}

    # With a CPU for each actor alone, none is left for the tasks that read images.
    ray.init(num_cpus=2 * len(os.sched_getaffinity(0)), log_to_driver=False)
    dataset = data.read_images(str(images), mode="RGB", include_paths=True).map(preprocess)
    dataset.map_batches(Predictor, batch_size=16, compute=data.ActorPoolStrategy(size=2)).write_parquet(str(output))
    ray.shutdown()


if __name__ == "__main__":
    main()
