"""Test the memory and the size of the first run of graphs that take images of any size."""

from pathlib import Path

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.loading import load
from app.core.runtimes.onnxruntime.trial import free_memory
from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import facts_of

ATTENTION = """
    (float[1, 3, h, w] images) => (float[1, 3, h, w] logits) <int64[3] flat = {1, 3, -1}> {
        tokens = Reshape(images, flat)
        columns = Transpose<perm = [0, 2, 1]>(tokens)
        products = MatMul(columns, tokens)
        weights = Softmax<axis = -1>(products)
        mixed = MatMul(tokens, weights)
        sides = Shape(images)
        logits = Reshape(mixed, sides)
    }
"""
MIB = 2**20


def test_first_run_that_needs_too_much_memory_is_rejected(tmp_path: Path) -> None:
    file = graphs.parse(tmp_path / "model.onnx", ATTENTION)
    # The weights of 640x640 pixels take 671 GB.
    with pytest.raises(
        ModelError, match=r"640x640 image: it needs more than .* GiB, half of the memory that is free; "
    ):
        load(graphs.source(file, task_type="IMAGE_SEGMENTATION"))
    settings = {"task_type": "IMAGE_SEGMENTATION", "preprocessing": {"size": [16, 16]}}
    assert load(graphs.source(file, **settings)).description.layout == "semantic"


@pytest.mark.parametrize(
    ("outputs", "size", "origin"),
    [
        ({"output0": (1, 84, 2100)}, "320x320", Origin.SHAPES),
        ({"output0": (1, 10647, 85)}, "416x416", Origin.SHAPES),
        ({"output0": (1, 84, 3000)}, "640x640", Origin.GUESSED),
        ({"probs": (1, 84)}, "224x224", Origin.GUESSED),
    ],
)
def test_size_of_the_first_run_is_that_of_the_outputs(
    tmp_path: Path, outputs: dict[str, tuple[int, ...]], size: str, origin: Origin
) -> None:
    arrays = {name: np.zeros(shape, np.float32) for name, shape in outputs.items()}
    file = graphs.constant(tmp_path / "model.onnx", arrays, shape=(1, 3, "h", "w"))
    settings = {"layout": "yolov5"} if 85 in outputs.get("output0", ()) else {}
    assert facts_of(file, **settings)["input size"] == Fact("input size", size, origin)


@pytest.mark.parametrize(
    ("memory", "limit", "free"),
    [
        ("MemTotal: 4096 kB\nMemAvailable:    2048 kB\n", "max", 2 * MIB),
        ("MemTotal: 4096 kB\nMemAvailable:    2048 kB\n", str(MIB), MIB - 1000 + 10),
        ("MemTotal: 4096 kB\nMemAvailable:    2048 kB\n", "500", 0),
        ("", "max", 8 * 1024 * MIB),
    ],
)
def test_free_memory_is_that_of_the_machine_within_the_limit_of_the_group(
    tmp_path: Path, memory: str, limit: str, free: int
) -> None:
    for name, text in {"meminfo": memory, "memory.max": limit, "memory.current": "1000"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 10\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == free
