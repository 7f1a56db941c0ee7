"""A Ray cluster on this machine that loses workers. Run it with an interpreter that has Ray.

Usage: ``python -m tests.plugins.bulk_run.cluster MODEL IMAGES OUTPUT``. It prints a JSON object with the status of
``charioteer run --ray``, the number of killed workers, and the rows of a pipeline with `charioteer.ray_map`.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import charioteer

ray: Any = importlib.import_module("ray")
data: Any = importlib.import_module("ray.data")

_WORKER = "ray::MapWorker(MapBatches(Predict))"


def main() -> None:
    """Run the command on a cluster, and kill its first worker; then run a pipeline of the user."""
    model, images, output = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        context = ray.init(
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=100_000_000,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        command = [sys.executable, "-m", "charioteer", "run", images, "--model", model, "--to", output]
        process = subprocess.Popen([*command, "--ray", context.address_info["gcs_address"], "--concurrency", "2"])
        killed = kill_worker(process)
        status = process.wait(200)
        dataset = data.read_binary_files(images, include_paths=True)
        predict = charioteer.ray_map(model, score_threshold=0.97)
        rows = dataset.map_batches(predict, compute=data.ActorPoolStrategy(size=1)).take_all()
        ray.shutdown()
    found = [
        [Path(row["metadata"][0]["text"]).name, row["labels"] and list(row["labels"]), row["error"]] for row in rows
    ]
    print(json.dumps({"status": status, "killed": killed, "rows": sorted(found)}))  # noqa: T201


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


if __name__ == "__main__":
    main()
