"""Test oriented boxes with known coordinates, in an image three times as wide as high."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    assert_found,
    detection_input,
    oriented_detector,
    uniform_image,
)

NAMES = ("bar", "arrow")
PROPERTIES = graphs.properties("obb", NAMES, (60, 60))
SHAPE = ("batch", 3, 60, 60)

# A 60x60 letterbox scales a 180x60 image to a third, and pads it with 20 rows above and below.
WIDE = uniform_image(60, 180, 0)
COLUMNS = [
    # cx, cy, w, h, bar, arrow, r
    [20, 30, 12, 3, 0.9, 0.1, 0.5],
    [20, 30, 12, 3, 0.8, 0.1, 0.6],
    [20, 30, 12, 3, 0.8, 0.1, 0.5 + math.pi / 2],
    [20, 30, 12, 3, 0.1, 0.7, 0.5],
    [50, 25, 4, 2, 0.1, 0.6, -0.3],
    [50, 25, 4, 2, 0.2, 0.1, 0],
]
EXPECTED = [
    ("bar", 0.9, [60, 30, 36, 9, 0.5]),
    ("bar", 0.8, [60, 30, 36, 9, 0.5 + math.pi / 2]),
    ("arrow", 0.7, [60, 30, 36, 9, 0.5]),
    ("arrow", 0.6, [150, 15, 12, 6, -0.3]),
]
ROWS = [
    [20, 30, 12, 3, 0.9, 0, 0.5],
    [20, 30, 12, 3, 0.8, 0, 0.5 + math.pi / 2],
    [20, 30, 12, 3, 0.7, 1, 0.5],
    [50, 25, 4, 2, 0.6, 1, -0.3],
]


@pytest.mark.parametrize("layout", ["raw", "transposed", "nms"])
def test_every_layout_gives_the_same_boxes(tmp_path: Path, layout: str) -> None:
    output = graphs.rows(ROWS) if layout == "nms" else graphs.raw(COLUMNS)
    if layout == "transposed":
        output = np.ascontiguousarray(np.repeat(output, 32, axis=2).transpose(0, 2, 1))
    file = graphs.constant(tmp_path / "model.onnx", {"output0": output}, shape=SHAPE, properties=PROPERTIES)
    (found,) = oriented_detector(file)([detection_input(WIDE)])
    assert_found(found, *EXPECTED)
    assert (found.width, found.height) == (180, 60)
    assert (found.scores.dtype, found.boxes.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("layout", ["raw", "raw-transposed"])
def test_only_best_2000_candidates_are_read(tmp_path: Path, layout: str) -> None:
    scores = np.random.default_rng(0).random(2500, np.float32)
    output = graphs.raw([[column % 60, 30, 12, 3, score, 0, 0.5] for column, score in enumerate(scores.tolist())])
    output = output if layout == "raw" else np.ascontiguousarray(output.transpose(0, 2, 1))
    file = graphs.constant(tmp_path / "model.onnx", {"output0": output}, shape=SHAPE, properties=PROPERTIES)
    (found,) = oriented_detector(file, layout=layout)([detection_input(WIDE, 0, iou_threshold=1)])
    assert sorted(found.scores.tolist()) == sorted(scores.tolist())[-2000:]
