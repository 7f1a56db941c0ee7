"""The programs beside which `tests.benchmarks.bulk_run` measures ``charioteer run``.

Usage: ``python -m tests.benchmarks.bulk_programs loop|ray MODEL IMAGES OUTPUT``
"""

import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.server.process_setup import configure_process
from tests.benchmarks.serving.floor import Chain, open_session


def bare_loop(model: Path, images: Path, output: Path) -> None:
    """Answer each image by OpenCV and ONNX Runtime in one thread for each core, and write JSON lines."""
    configure_process()
    chain = Chain(model)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, output.open("wb") as file:
        for records in pool.map(lambda path: chain.answer(path.read_bytes()), sorted(images.rglob("*.jpg"))):
            file.write(msgspec.json.encode(records) + b"\n")


def ray_pipeline(model: Path, images: Path, output: Path) -> None:
    """Answer each image as in "Offline Batch Inference" of Ray Data's documentation, with ONNX Runtime.

    A session has one thread, as the documentation gives one CPU to each actor.
    """
    ray: Any = importlib.import_module("ray")
    data: Any = importlib.import_module("ray.data")

    class Predictor:
        def __init__(self) -> None:
            self.session, self.input, _ = open_session(model)

        def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, Any]:
            scores = np.concatenate([self.session.run(None, {self.input: image[None]})[0] for image in batch["image"]])
            return {"path": batch["path"], "label": scores.argmax(axis=1), "score": scores.max(axis=1)}

    side = open_session(model)[2]

    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        resized = cv2.resize(row["image"], (side, side))
        return {"path": row["path"], "image": resized.transpose(2, 0, 1).astype(np.float32) / 255}

    cores = len(os.sched_getaffinity(0))
    # With a CPU for each actor alone, none is left for the tasks that read images.
    ray.init(num_cpus=2 * cores, log_to_driver=False)
    dataset = data.read_images(str(images), mode="RGB", include_paths=True).map(preprocess)
    dataset.map_batches(Predictor, batch_size=16, compute=data.ActorPoolStrategy(size=cores)).write_parquet(str(output))
    ray.shutdown()


if __name__ == "__main__":
    {"loop": bare_loop, "ray": ray_pipeline}[sys.argv[1]](*map(Path, sys.argv[2:]))
