"""A run on a Ray cluster that loses a worker: a part of `tests.plugins.ray.cluster`, because Ray starts slowly."""

import importlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import charioteer

ray: Any = importlib.import_module("ray")
data: Any = importlib.import_module("ray.data")

_WORKER = "ray::MapWorker(MapBatches(Predict))"


def bulk(model: str, images: str, output: str) -> dict[str, object]:
    """Run ``charioteer run --ray``, and kill its first worker; then run a pipeline of the user.

    Return the status of the command, the number of killed workers, and the rows of the pipeline.
    """
    command = [sys.executable, "-m", "charioteer", "run", images, "--model", model, "--to", output]
    address = ray.get_runtime_context().gcs_address
    process = subprocess.Popen([*command, "--ray", address, "--concurrency", "2"])
    killed = kill_worker(process)
    status = process.wait(600)
    dataset = data.read_binary_files(f"{images}/0", include_paths=True)
    predict = charioteer.ray_map(model, score_threshold=0.97)
    rows = dataset.map_batches(predict, compute=data.ActorPoolStrategy(size=1)).take_all()
    found = [
        [Path(row["metadata"][0]["text"]).name, row["labels"] and list(row["labels"]), row["error"]] for row in rows
    ]
    return {"status": status, "killed": killed, "rows": sorted(found)}


def kill_worker(process: "subprocess.Popen[bytes]") -> int:
    """Kill the first worker that answers images, as a machine failure would; return the number of killed ones."""
    pause = threading.Event()
    while process.poll() is None:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                title = (entry / "cmdline").read_bytes().rstrip(b"\0").decode()
            except OSError:
                continue
            if title == f"{_WORKER}.submit":
                os.kill(int(entry.name), signal.SIGKILL)
                return 1
        pause.wait(0.01)
    return 0
