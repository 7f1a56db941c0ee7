"""Rows with a score of there being any object."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.description import Fact, Origin
from app.settings.model import ModelError
from tests.app.runtimes.onnxruntime import graphs
from tests.app.runtimes.onnxruntime.answers import close, detector, flat, inspected, sought

LABELS = ("cat", "dog")
SHAPE = ("batch", 3, 64, 64)
# A 128x64 picture in a 64x64 letterbox is halved, and has 16 rows of padding above and below.
WIDE = flat(64, 128, 0)
ROWS = [
    # cx, cy, w, h, object, cat, dog
    [16, 24, 8, 4, 0.9, 0.1, 0.8],
    [17, 24, 8, 4, 0.8, 0.1, 0.8],
    [40, 32, 4, 4, 0.5, 0.9, 0.2],
    [50, 32, 4, 4, 0.1, 0.9, 0.9],
]
# In YOLOX's three grids over 64x64 pixels, of 8, 16 and 32 pixels a cell.
CELLS = 64 + 16 + 4


@pytest.mark.parametrize("batch", ["batch", 1])
def test_the_score_of_a_class_is_multiplied(tmp_path: Path, batch: int | str) -> None:
    output = np.zeros((1, 60, 7), np.float32)
    output[0, : len(ROWS)] = ROWS
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=(batch, 3, 64, 64))
    model = detector(file, layout="yolov5", labels=LABELS)
    for found in model([sought(WIDE, 0.4), sought(WIDE, 0.4)]):
        assert found.labels == ["dog", "cat"]
        assert found.scores == pytest.approx([0.72, 0.45])
        assert close(found.boxes, [[24, 12, 40, 20], [76, 28, 84, 36]])
    assert [len(each.labels) for each in model([sought(WIDE, 0.73), sought(WIDE, 0.0, 0.99)])] == [0, 4]


def test_the_grids_before_them_are_ignored(tmp_path: Path) -> None:
    output = np.zeros((1, 60, 7), np.float32)
    output[0, : len(ROWS)] = ROWS
    grids = np.zeros((1, 3, 8, 8, 7), np.float32)
    file = graphs.constant(tmp_path / "model.onnx", {"output": output, "350": grids}, shape=SHAPE)
    (found,) = detector(file, layout="yolov5", labels=LABELS)([sought(WIDE)])
    assert found.labels == ["dog"]


def grids(*rows: tuple[int, list[float]]) -> Any:
    output = np.zeros((1, CELLS, 7), np.float32)
    for index, row in rows:
        output[0, index] = row
    return output


def test_boxes_in_cells_become_boxes_in_pixels(tmp_path: Path) -> None:
    output = grids(
        # Row 1, column 2 of the first grid; row 3, column 0 of the second; row 1, column 1 of the third.
        (8 + 2, [0.5, 0.25, math.log(2), math.log(0.5), 0.9, 1, 0]),
        (64 + 12, [1, 0.5, 0, math.log(2), 0.8, 0, 1]),
        (64 + 16 + 3, [0, 0, math.log(1.5), 0, 0.7, 1, 0]),
    )
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=SHAPE)
    (found,) = detector(file, layout="yolox", labels=LABELS)([sought(flat(64, 64, 0))])
    assert found.labels == ["cat", "dog", "cat"]
    assert found.scores == pytest.approx([0.9, 0.8, 0.7])
    # cx, cy, w, h: 20, 10, 16, 4 and 16, 56, 16, 32 and 32, 32, 48, 32.
    assert close(found.boxes, [[12, 8, 28, 12], [8, 40, 24, 72], [8, 16, 56, 48]])


def test_pictures_are_padded_to_the_right_and_below(tmp_path: Path) -> None:
    output = grids((8 + 2, [0.5, 0.25, math.log(2), math.log(0.5), 0.9, 1, 0]))
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=SHAPE)
    (wide, high) = detector(file, layout="yolox")([sought(WIDE), sought(flat(128, 64, 0))])
    assert close(wide.boxes, [[24, 16, 56, 24]])
    assert close(high.boxes, [[24, 16, 56, 24]])
    facts = {fact.topic: fact for fact in inspected(graphs.source(file, layout="yolox")).description.facts}
    assert facts["resize"] == Fact("resize", "pad", Origin.CONVENTION)
    assert facts["scale"] == Fact("scale", "1", Origin.CONVENTION)
    assert facts["channel order"] == Fact("channel order", "BGR", Origin.CONVENTION)


def test_sizes_that_overflow_are_cut(tmp_path: Path) -> None:
    output = grids((0, [0, 0, 1e4, 1e4, 0.9, 1, 0]))
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=SHAPE)
    (found,) = detector(file, layout="yolox")([sought(flat(64, 64, 0))])
    assert np.isfinite(found.boxes).all()


def test_the_grids_of_models_with_four(tmp_path: Path) -> None:
    output = np.zeros((1, 256 + 64 + 16 + 4, 7), np.float32)
    output[0, 256 + 64 + 16 + 3] = [0, 0, 0, 0, 0.9, 1, 0]
    file = graphs.constant(tmp_path / "model.onnx", {"output": output}, shape=("b", 3, 128, 128))
    (found,) = detector(file, layout="yolox")([sought(flat(128, 128, 0))])
    assert close(found.boxes, [[32, 32, 96, 96]])


def test_another_number_of_cells_is_refused(tmp_path: Path) -> None:
    from app.runtimes.onnxruntime.single_graph import load_single_graph

    file = graphs.constant(tmp_path / "model.onnx", {"output": np.zeros((1, 100, 7), np.float32)}, shape=SHAPE)
    with pytest.raises(ModelError, match="100 candidates, which do not fit YOLOX's grids over 64x64 pixels"):
        load_single_graph(graphs.source(file, layout="yolox"))
