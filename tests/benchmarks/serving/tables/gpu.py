"""Measure throughput and latency on a GPU, next to the same models in a bare loop (``make bench-gpu``)."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tests.benchmarks.serving.load import send
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section, as_markdown
from tests.benchmarks.serving.shape import CLASSES, LABELS, SIDE
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload, copy_model, make_workload

_BATCHING = {"max_size": 32, "max_delay_ms": 2}
_BATCHES = (1, 8, 32)

Call = Callable[[int], object]
"""Runs the model on a batch of the given size."""


def main() -> None:
    """Measure the models that a GPU can run here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0", help="cpu checks this program without a GPU")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 4, 16, 64, 256])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload(Path(folder) / "workload")
        models = Path(folder) / "models"
        loops: dict[str, Call] = {}
        for name, prepare in {"medium": _medium, "vit": _vit}.items():
            loop = prepare(workload, models / name, options.device)
            if loop is None:
                print(f"{name}: no GPU")
            else:
                loops[name] = loop
        if loops:
            print(as_markdown(_section(workload, models, loops, options.requests, options.connections)))


def _section(
    workload: Workload, models: Path, loops: dict[str, Call], requests: int, connections: list[int]
) -> Section:
    rows: list[list[Cell]] = []
    for name, call in loops.items():
        rows += [[name, "bare loop", f"batch {size}", _images_a_second(call, size), None, None] for size in _BATCHES]
    with charioteer(
        "--model-repository", str(models), "--max-waiting", str(4 * max(*connections, *_BATCHES))
    ) as server:
        for name in loops:
            request = chariot(server.ports["http"], name, workload.images["vga"])
            send(request, 200, max(_BATCHES))
            for count in connections:
                result = send(request, requests, count)
                rows.append([name, "server", f"{count} connections", result.rate, *result.latency])
    about = (
        "Images a second of the model alone, and requests a second of the server with the VGA image and batches of up "
        f"to {_BATCHING['max_size']}. The server also decodes the images, on the CPU. Medium runs in ONNX Runtime, "
        f"vit-small in torch."
    )
    return Section(
        title="GPU", about=about, columns=["model", "what", "load", "a second", "p50 ms", "p99 ms"], rows=rows
    )


def _images_a_second(call: Call, size: int, seconds: float = 2) -> float:
    call(size)
    started, images = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        call(size)
        images += size
    return images / elapsed


def _medium(workload: Workload, target: Path, device: str) -> Call | None:
    """Write the model's folder for a device, and return the bare call; None if ONNX Runtime lacks the device."""
    provider = "CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        return None
    number = [{}] if device == "cpu" else [{"device_id": device.partition(":")[2] or "0"}]
    session = onnxruntime.InferenceSession(workload.model("medium"), providers=[provider], provider_options=number)
    if provider not in session.get_providers():
        return None
    copy_model(workload.folder / "medium", target, {"onnxruntime": {"devices": [device]}, "batching": _BATCHING})
    batches = {size: np.zeros((size, 3, SIDE, SIDE), np.float32) for size in _BATCHES}
    return lambda size: session.run(None, {"input": batches[size]})


def _vit(_: Workload, target: Path, device: str) -> Call | None:
    """Write ViT-small with random weights, and return the bare call; None if torch lacks the device."""
    import torch
    import transformers

    if device != "cpu" and not torch.cuda.is_available():
        return None
    config: Any = transformers.ViTConfig(
        hidden_size=384, intermediate_size=1536, num_attention_heads=6, id2label=dict(enumerate(LABELS))
    )
    assert config.num_labels == CLASSES
    torch.manual_seed(0)
    model: Any = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(target)
    transformers.ViTImageProcessorPil().save_pretrained(target)
    settings = {"transformers": {"device": device}, "batching": _BATCHING}
    (target / "model-settings.json").write_text(json.dumps(settings))
    model.to(device)

    def call(size: int) -> object:
        with torch.inference_mode():
            # Copy the result, because the GPU works asynchronously.
            return model(torch.zeros((size, 3, SIDE, SIDE), device=device)).logits.cpu()

    return call


if __name__ == "__main__":
    main()
