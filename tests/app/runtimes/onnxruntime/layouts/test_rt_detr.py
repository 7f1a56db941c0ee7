"""RT-DETR and D-FINE: boxes that the graph itself scales to the size it is told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from app.engine.description import Fact, Origin
from tasks.exchange.error import InferenceError
from tests.app.runtimes.onnxruntime import graphs
from tests.app.runtimes.onnxruntime.answers import close, detector, flat, inspected, sought

FRACTIONS = [[0.25, 0.5, 0.5, 0.75], [0, 0, 0.125, 1.25], [0.5, 0.5, 0.75, 0.75], [0, 0, 1, 1]]
LABELS = ("cat", "dog")


def write(
    folder: Path,
    batch: int | str = "N",
    sizes: int = TensorProto.INT64,
    scores: tuple[float, ...] = (0.9, 0.8, 0.3, 0.0),
    sides: tuple[int | str, int | str] = (64, 64),
) -> Path:
    """A graph whose boxes are fractions times the (width, height) it is given, a picture each."""
    constants: dict[str, Any] = {
        "fractions": np.array([FRACTIONS], np.float32),
        "numbers": np.array([[1, 0, 1, 0]], np.int64),
        "known": np.array([scores], np.float32),
        "row": np.array([-1, 1, 4], np.int64),
        "zero": np.array(0, np.float32),
    }
    nodes = [
        helper.make_node("Cast", ["orig_target_sizes"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["floats", "floats"], ["twice"], axis=1),
        helper.make_node("Reshape", ["twice", "row"], ["scale"]),
        helper.make_node("Mul", ["fractions", "scale"], ["boxes"]),
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Unsqueeze", ["nothing", "axis"], ["column"]),
        helper.make_node("Add", ["column", "known"], ["scores"]),
        helper.make_node("Cast", ["column"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Add", ["whole", "numbers"], ["labels"]),
    ]
    constants["axis"] = np.array([1], np.int64)
    return graphs.write(
        folder / "model.onnx",
        nodes,
        {"labels": [batch, 4], "boxes": [batch, 4, 4], "scores": [batch, 4]},
        constants=constants,
        shape=(batch, 3, *sides),
        others=[helper.make_tensor_value_info("orig_target_sizes", sizes, [batch, 2])],
        kinds={"labels": TensorProto.INT64},
    )


@pytest.mark.parametrize("batch", ["N", 1, 2])
@pytest.mark.parametrize("sizes", [TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT])
def test_boxes_come_in_the_pixels_of_each_picture(tmp_path: Path, batch: int | str, sizes: int) -> None:
    model = detector(write(tmp_path, batch, sizes), labels=LABELS)
    wide, high, last = model([sought(flat(100, 200, 0)), sought(flat(80, 40, 0)), sought(flat(64, 64, 0))])
    assert wide.labels == ["dog", "cat"]
    assert wide.scores == pytest.approx([0.9, 0.8])
    # Not clipped yet: the task does that.
    assert close(wide.boxes, [[50, 50, 100, 75], [0, 0, 25, 125]])
    assert close(high.boxes, [[10, 40, 20, 60], [0, 0, 5, 100]])
    assert close(last.boxes, [[16, 32, 32, 48], [0, 0, 8, 80]])


def test_letterboxed_pictures_are_undone_too(tmp_path: Path) -> None:
    model = detector(write(tmp_path), labels=LABELS, preprocessing={"resize": "letterbox"})
    (found,) = model([sought(flat(64, 128, 0), 0.85)])
    # Half as large, with 16 rows of padding above: y 32..48 of the input is 32..64 of the picture.
    assert close(found.boxes, [[32, 32, 64, 64]])


def test_thresholds_are_those_of_each_picture(tmp_path: Path) -> None:
    picture = flat(64, 64, 0)
    found = detector(write(tmp_path))([sought(picture, 0.0), sought(picture, 0.85), sought(picture, 0.8)])
    assert [each.labels for each in found] == [["1", "0", "1"], ["1"], ["1", "0"]]


def test_inputs_of_any_size_are_guessed(tmp_path: Path) -> None:
    model = detector(write(tmp_path, sides=("h", "w")), labels=LABELS)
    (found,) = model([sought(flat(100, 200, 0), 0.85)])
    assert close(found.boxes, [[50, 50, 100, 75]])


def test_what_is_filled_in_is_said(tmp_path: Path) -> None:
    facts = inspected(graphs.source(write(tmp_path))).description.facts
    assert Fact("further input", "orig_target_sizes, filled in by the server", Origin.MODEL_FILE) in facts
    assert Fact("resize", "stretch", Origin.CONVENTION) in facts
    assert Fact("mean", "0, 0, 0", Origin.CONVENTION) in facts


def test_a_class_without_a_label_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="class number 1, but has only 1 labels"):
        detector(write(tmp_path), labels=("cat",))([sought(flat(64, 64, 0))])
