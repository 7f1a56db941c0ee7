"""Test RT-DETR and D-FINE: the graph scales boxes to the image size that it receives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

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

FRACTIONS = [[0.25, 0.5, 0.5, 0.75], [0, 0, 0.125, 1.25], [0.5, 0.5, 0.75, 0.75], [0, 0, 1, 1]]
LABELS = ("cat", "dog")


def write(folder: Path, batch: int | str = "N", sizes: int = TensorProto.INT64, sides: Any = (64, 64)) -> Path:
    """Write a graph whose boxes are fractions times the (width, height) given for each image."""
    constants: dict[str, Any] = {
        "fractions": np.array([FRACTIONS], np.float32),
        "numbers": np.array([[1, 0, 1, 0]], np.int64),
        "known": np.array([[0.9, 0.8, 0.3, 0.0]], np.float32),
        "row": np.array([-1, 1, 4], np.int64),
        "zero": np.array(0, np.float32),
        "axis": np.array([1], np.int64),
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
    return graphs.write(
        folder / "model.onnx",
        nodes,
        {"labels": [batch, 4], "boxes": [batch, 4, 4], "scores": [batch, 4]},
        constants=constants,
        shape=(batch, 3, *sides),
        extra_inputs=[helper.make_tensor_value_info("orig_target_sizes", sizes, [batch, 2])],
        output_types={"labels": TensorProto.INT64},
    )


@pytest.mark.parametrize(
    ("batch", "sizes", "sides"),
    [
        ("N", TensorProto.INT64, ("h", "w")),
        (1, TensorProto.INT32, (64, 64)),
        (2, TensorProto.INT64, (64, 64)),
        (2, TensorProto.FLOAT, (64, 64)),
    ],
)
def test_boxes_are_in_pixels_of_each_image(tmp_path: Path, batch: Any, sizes: int, sides: Any) -> None:
    model = detector(write(tmp_path, batch, sizes, sides=sides), labels=LABELS)
    images = (uniform_image(100, 200, 0), uniform_image(80, 40, 0), uniform_image(64, 64, 0))
    wide, high, last = model([detection_input(image) for image in images])
    # The task clips boxes later.
    assert_found(wide, ("dog", 0.9, [50, 50, 100, 75]), ("cat", 0.8, [0, 0, 25, 125]))
    assert all_close(high.boxes, [[10, 40, 20, 60], [0, 0, 5, 100]])
    assert all_close(last.boxes, [[16, 32, 32, 48], [0, 0, 8, 80]])


def test_letterbox_is_undone_in_boxes(tmp_path: Path) -> None:
    image = uniform_image(64, 128, 0)
    found = detect(write(tmp_path), image, 0.85, labels=LABELS, preprocessing={"resize": "letterbox"})
    # The letterbox halves the image and adds 16 rows above: y 32..48 of the input is y 32..64 of the image.
    assert all_close(found.boxes, [[32, 32, 64, 64]])


def test_description_lists_input_filled_by_server(tmp_path: Path) -> None:
    facts = facts_of(write(tmp_path))
    assert facts["further input"].value == "orig_target_sizes, filled in by the server"
    assert facts["resize"] == Fact("resize", "stretch", Origin.CONVENTION)
    assert facts["mean"] == Fact("mean", "0, 0, 0", Origin.CONVENTION)
