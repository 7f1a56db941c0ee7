"""Test RT-DETR and D-FINE: the graph scales boxes to the image size that it receives."""

from pathlib import Path

import pytest

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
GRAPH = """
(float[BATCH, 3, SIDES] images, SIZE[BATCH, 2] orig_target_sizes)
=> (int64[BATCH, 4] labels, float[BATCH, 4, 4] boxes, float[BATCH, 4] scores)
<float[1, 4, 4] fractions = {0.25, 0.5, 0.5, 0.75, 0, 0, 0.125, 1.25, 0.5, 0.5, 0.75, 0.75, 0, 0, 1, 1},
 float[1, 4] known = {0.9, 0.8, 0.3, 0}, int64[1, 4] numbers = {1, 0, 1, 0}, int64[3] row = {-1, 1, 4},
 int64[1] axis = {1}, float zero = {0}> {
    floats = Cast<to = 1>(orig_target_sizes)
    twice = Concat<axis = 1>(floats, floats)
    scale = Reshape(twice, row)
    boxes = Mul(fractions, scale)
    mean = ReduceMean<axes = [1, 2, 3], keepdims = 0>(images)
    nothing = Mul(mean, zero)
    column = Unsqueeze(nothing, axis)
    scores = Add(column, known)
    whole = Cast<to = 7>(column)
    labels = Add(whole, numbers)
}
"""
"""Its boxes are fractions times the (width, height) given for each image."""


def write(folder: Path, batch: str = "N", size: str = "int64", sides: str = "64, 64") -> Path:
    text = GRAPH.replace("BATCH", batch).replace("SIZE", size).replace("SIDES", sides)
    return graphs.parse(folder / "model.onnx", text)


@pytest.mark.parametrize(
    ("batch", "size", "sides"),
    [("N", "int64", "h, w"), ("1", "int32", "64, 64"), ("2", "int64", "64, 64"), ("2", "float", "64, 64")],
)
def test_boxes_are_in_pixels_of_each_image(tmp_path: Path, batch: str, size: str, sides: str) -> None:
    model = detector(write(tmp_path, batch, size, sides), labels=LABELS)
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
