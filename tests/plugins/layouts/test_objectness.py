"""Test layouts with an objectness score."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import all_close, detection_input, detector, inspected, uniform_image

LABELS = ("cat", "dog")
SHAPE = ("batch", 3, 64, 64)
# A 64x64 letterbox halves a 128x64 image, and pads it with 16 rows above and below.
WIDE = uniform_image(64, 128, 0)
ROWS = [
    # cx, cy, w, h, object, cat, dog
    [16, 24, 8, 4, 0.9, 0.1, 0.8],
    [17, 24, 8, 4, 0.8, 0.1, 0.8],
    [40, 32, 4, 4, 0.5, 0.9, 0.2],
    [50, 32, 4, 4, 0.1, 0.9, 0.9],
]
# YOLOX has three grids over 64x64 pixels, with cells of 8, 16 and 32 pixels.
CELLS = 64 + 16 + 4


@pytest.mark.parametrize("batch", ["batch", 1])
def test_class_score_is_multiplied_by_objectness(tmp_path: Path, batch: int | str) -> None:
    output = np.zeros((1, 60, 7), np.float32)
    output[0, : len(ROWS)] = ROWS
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=(batch, 3, 64, 64))
    model = detector(file, layout="yolov5", labels=LABELS)
    for found in model([detection_input(WIDE, 0.4), detection_input(WIDE, 0.4)]):
        assert found.labels == ["dog", "cat"]
        assert found.scores == pytest.approx([0.72, 0.45])
        assert all_close(found.boxes, [[24, 12, 40, 20], [76, 28, 84, 36]])
    assert [
        len(detections.labels) for detections in model([detection_input(WIDE, 0.73), detection_input(WIDE, 0.0, 0.99)])
    ] == [0, 4]


@pytest.mark.parametrize("labels", [None, ("dog",)])
def test_one_class_of_yolov5_is_found_without_a_declared_layout(tmp_path: Path, labels: tuple[str, ...] | None) -> None:
    output = np.zeros((1, 3 * CELLS, 6), np.float32)
    output[0, 0] = [16, 24, 8, 4, 0.9, 0.8]
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=("batch", 3, "height", "width"))
    settings = {"labels": labels, "preprocessing": {"size": [64, 64]}}
    (found,) = detector(file, **settings)([detection_input(WIDE, 0.4)])
    assert found.labels == list(labels or ("0",))
    assert found.scores == pytest.approx([0.72])
    assert all_close(found.boxes, [[24, 12, 40, 20]])


def test_yolov5_grid_outputs_are_ignored(tmp_path: Path) -> None:
    output = np.zeros((1, 60, 7), np.float32)
    output[0, : len(ROWS)] = ROWS
    grid_output = np.zeros((1, 3, 8, 8, 7), np.float32)
    file = graphs.constant(tmp_path / "model.onnx", {"output": output, "350": grid_output}, shape=SHAPE)
    (found,) = detector(file, layout="yolov5", labels=LABELS)([detection_input(WIDE)])
    assert found.labels == ["dog"]


def yolox_output(*rows: tuple[int, list[float]]) -> Any:
    output = np.zeros((1, CELLS, 7), np.float32)
    for index, row in rows:
        output[0, index] = row
    return output


def test_yolox_boxes_are_converted_from_cells_to_pixels(tmp_path: Path) -> None:
    output = yolox_output(
        # Row 1, column 2 of the first grid; row 3, column 0 of the second; row 1, column 1 of the third.
        (8 + 2, [0.5, 0.25, math.log(2), math.log(0.5), 0.9, 1, 0]),
        (64 + 12, [1, 0.5, 0, math.log(2), 0.8, 0, 1]),
        (64 + 16 + 3, [0, 0, math.log(1.5), 0, 0.7, 1, 0]),
        (0, [0, 0, 1e4, 1e4, 0.6, 1, 0]),
    )
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=SHAPE)
    (found,) = detector(file, layout="yolox", labels=LABELS)([detection_input(uniform_image(64, 64, 0))])
    assert found.labels == ["cat", "dog", "cat", "cat"]
    assert found.scores == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert np.isfinite(found.boxes).all(), "also the sides that overflow"
    # cx, cy, w, h: 20, 10, 16, 4 and 16, 56, 16, 32 and 32, 32, 48, 32.
    assert all_close(found.boxes[:3], [[12, 8, 28, 12], [8, 40, 24, 72], [8, 16, 56, 48]])


def test_yolox_images_are_padded_right_and_below(tmp_path: Path) -> None:
    output = yolox_output((8 + 2, [0.5, 0.25, math.log(2), math.log(0.5), 0.9, 1, 0]))
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=SHAPE)
    (wide, high) = detector(file, layout="yolox")([detection_input(WIDE), detection_input(uniform_image(128, 64, 0))])
    assert all_close(wide.boxes, [[24, 16, 56, 24]])
    assert all_close(high.boxes, [[24, 16, 56, 24]])
    facts = {fact.topic: fact for fact in inspected(graphs.source(file, layout="yolox")).description.facts}
    assert facts["resize"] == Fact("resize", "pad", Origin.CONVENTION)
    assert facts["scale"] == Fact("scale", "1", Origin.CONVENTION)
    assert facts["channel order"] == Fact("channel order", "BGR", Origin.CONVENTION)


def test_yolox_models_with_four_grids_are_read(tmp_path: Path) -> None:
    output = np.zeros((1, 256 + 64 + 16 + 4, 7), np.float32)
    output[0, 256 + 64 + 16 + 3] = [0, 0, 0, 0, 0.9, 1, 0]
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=("b", 3, 128, 128))
    (found,) = detector(file, layout="yolox")([detection_input(uniform_image(128, 128, 0))])
    assert all_close(found.boxes, [[32, 32, 96, 96]])


def test_wrong_number_of_yolox_cells_is_rejected(tmp_path: Path) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {"output": np.zeros((1, 100, 7), np.float32)}, shape=SHAPE)
    with pytest.raises(ModelError, match="100 candidates, which do not fit YOLOX's grids over 64x64 pixels"):
        load(graphs.source(file, layout="yolox"))
