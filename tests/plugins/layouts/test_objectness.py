"""Test layouts with an objectness score."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    all_close,
    assert_found,
    detect,
    detection_input,
    detector,
    facts_of,
    uniform_image,
)  # fmt: skip

LABELS = ("cat", "dog")
# A 64x64 letterbox halves a 128x64 image, and pads it with 16 rows above and below.
WIDE = uniform_image(64, 128, 0)
ROWS = {
    # cx, cy, w, h, object, cat, dog
    0: [16, 24, 8, 4, 0.9, 0.1, 0.8],
    1: [17, 24, 8, 4, 0.8, 0.1, 0.8],
    2: [40, 32, 4, 4, 0.5, 0.9, 0.2],
    3: [50, 32, 4, 4, 0.1, 0.9, 0.9],
}
# YOLOX has three grids over 64x64 pixels, with cells of 8, 16 and 32 pixels.
CELLS = 64 + 16 + 4


def write(
    folder: Path, rows: Mapping[int, Sequence[float]], count: int, shape: Any = ("batch", 3, 64, 64), **outputs: Any
) -> Path:
    """Write a graph with `count` candidates, which are zero except for `rows`, and with further outputs."""
    output = np.zeros((1, count, len(next(iter(rows.values()), range(7)))), np.float32)
    for index, row in rows.items():
        output[0, index] = row
    return graphs.constant(folder / "model.onnx", {"output": output, **outputs}, shape=shape)


@pytest.mark.parametrize("batch", ["batch", 1])
def test_class_score_is_multiplied_by_objectness(tmp_path: Path, batch: int | str) -> None:
    model = detector(write(tmp_path, ROWS, 60, (batch, 3, 64, 64)), layout="yolov5", labels=LABELS)
    for found in model([detection_input(WIDE, 0.4), detection_input(WIDE, 0.4)]):
        assert_found(found, ("dog", 0.72, [24, 12, 40, 20]), ("cat", 0.45, [76, 28, 84, 36]))
    few, many = model([detection_input(WIDE, 0.73), detection_input(WIDE, 0.0, 0.99)])
    assert (len(few.labels), len(many.labels)) == (0, 4)


@pytest.mark.parametrize("labels", [None, ("dog",)])
def test_one_class_of_yolov5_is_found_without_a_declared_layout(tmp_path: Path, labels: tuple[str, ...] | None) -> None:
    file = write(tmp_path, {0: [16, 24, 8, 4, 0.9, 0.8]}, 3 * CELLS, ("batch", 3, "height", "width"))
    found = detect(file, WIDE, 0.4, labels=labels, preprocessing={"size": [64, 64]})
    assert_found(found, ("dog" if labels else "0", 0.72, [24, 12, 40, 20]))


def test_yolov5_grid_outputs_are_ignored(tmp_path: Path) -> None:
    file = write(tmp_path, ROWS, 60, **{"350": np.zeros((1, 3, 8, 8, 7), np.float32)})
    assert detect(file, WIDE, layout="yolov5", labels=LABELS).labels == ["dog"]


# Row 1, column 2 of the first grid.
FIRST = {8 + 2: [0.5, 0.25, math.log(2), math.log(0.5), 0.9, 1, 0]}


def test_yolox_boxes_are_converted_from_cells_to_pixels(tmp_path: Path) -> None:
    others = {
        # Row 3, column 0 of the second grid; row 1, column 1 of the third.
        64 + 12: [1, 0.5, 0, math.log(2), 0.8, 0, 1],
        64 + 16 + 3: [0, 0, math.log(1.5), 0, 0.7, 1, 0],
        0: [0, 0, 1e4, 1e4, 0.6, 1, 0],
    }
    file = write(tmp_path, {**FIRST, **others}, CELLS)
    found = detect(file, uniform_image(64, 64, 0), layout="yolox", labels=LABELS)
    assert found.labels == ["cat", "dog", "cat", "cat"]
    assert found.scores == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert np.isfinite(found.boxes).all(), "also the sides that overflow"
    # cx, cy, w, h: 20, 10, 16, 4 and 16, 56, 16, 32 and 32, 32, 48, 32.
    assert all_close(found.boxes[:3], [[12, 8, 28, 12], [8, 40, 24, 72], [8, 16, 56, 48]])


def test_yolox_images_are_padded_right_and_below(tmp_path: Path) -> None:
    file = write(tmp_path, FIRST, CELLS)
    for image in (WIDE, uniform_image(128, 64, 0)):
        assert all_close(detect(file, image, layout="yolox").boxes, [[24, 16, 56, 24]])
    facts = facts_of(file, layout="yolox")
    for topic, value in {"resize": "pad", "scale": "1", "channel order": "BGR"}.items():
        assert facts[topic] == Fact(topic, value, Origin.CONVENTION)


def test_yolox_models_with_four_grids_are_read(tmp_path: Path) -> None:
    file = write(tmp_path, {256 + 64 + 16 + 3: [0, 0, 0, 0, 0.9, 1, 0]}, 256 + 64 + 16 + 4, ("b", 3, 128, 128))
    assert all_close(detect(file, uniform_image(128, 128, 0), layout="yolox").boxes, [[32, 32, 96, 96]])


def test_wrong_number_of_yolox_cells_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="100 candidates, which do not fit YOLOX's grids over 64x64 pixels"):
        load(graphs.source(write(tmp_path, {}, 100), layout="yolox"))
