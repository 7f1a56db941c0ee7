"""Test boxes with known coordinates."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.inference.error import InferenceError
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import assert_found, detection_input, detector, uniform_image

NAMES = ("cat", "dog", "fox")
PROPERTIES = graphs.properties("detect", NAMES, (64, 64))
SHAPE = ("batch", 3, 64, 64)

# A 64x64 letterbox halves a 128x64 image, and pads it with 16 rows above and below.
WIDE = uniform_image(64, 128, 0)
COLUMNS = [
    # cx, cy, w, h, cat, dog, fox
    [16, 24, 8, 4, 0.1, 0.9, 0.2],
    [17, 24, 8, 4, 0.1, 0.8, 0.2],
    [17, 24, 8, 4, 0.7, 0.3, 0.2],
    [40, 32, 4, 4, 0.0, 0.0, 0.6],
    [50, 32, 4, 4, 0.3, 0.2, 0.1],
]
EXPECTED = [("dog", 0.9, [24, 12, 40, 20]), ("cat", 0.7, [26, 12, 42, 20]), ("fox", 0.6, [76, 28, 84, 36])]
ROWS = [[12, 22, 20, 26, 0.9, 1], [13, 22, 21, 26, 0.7, 0], [38, 30, 42, 34, 0.6, 2]]


TRANSPOSED = np.ascontiguousarray(graphs.raw(COLUMNS).transpose(0, 2, 1))
LAYOUTS: dict[str, tuple[Any, dict[str, str], dict[str, Any]]] = {
    "raw": (graphs.raw(COLUMNS), PROPERTIES, {}),
    "raw, transposed": (TRANSPOSED, PROPERTIES, {}),
    "nms": (graphs.rows(ROWS), PROPERTIES, {}),
    "end2end": (graphs.rows(ROWS), {**PROPERTIES, "end2end": "True"}, {}),
    "nms, few": (graphs.rows(ROWS, max_rows=3), PROPERTIES, {}),
}


def write(folder: Path, output: Any, **options: Any) -> Path:
    """Write a detector with a constant output."""
    options = {"shape": SHAPE, "properties": PROPERTIES, **options}
    return graphs.constant(folder / "model.onnx", {"output0": output}, **options)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.verifies("graphs with known answers", "ultralytics", "yolo-like")
def test_every_layout_gives_the_same_boxes(tmp_path: Path, layout: str) -> None:
    output, properties, declared = LAYOUTS[layout]
    (found,) = detector(write(tmp_path, output, properties=properties), **declared)([detection_input(WIDE)])
    assert_found(found, *EXPECTED)
    assert (found.scores.dtype, found.boxes.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("layout", ["raw", "raw, transposed"])
def test_agnostic_suppression_drops_worse_boxes_of_other_classes(tmp_path: Path, layout: str) -> None:
    (found,) = detector(write(tmp_path, LAYOUTS[layout][0]))([detection_input(WIDE, agnostic=True)])
    assert found.labels == ["dog", "fox"]


def test_classes_without_names_are_labelled_by_number(tmp_path: Path) -> None:
    (found,) = detector(write(tmp_path, graphs.rows(ROWS), properties={}))([detection_input(WIDE)])
    assert found.labels == ["1", "0", "2"]


def test_each_image_has_its_own_thresholds(tmp_path: Path) -> None:
    thresholds = ((0.5,), (0.65,), (0.2,), (0.95,), (0.65, 0.9))
    inputs = [detection_input(WIDE, *numbers) for numbers in thresholds]
    model = detector(write(tmp_path, graphs.raw(COLUMNS)))
    assert [len(found.labels) for found in model(inputs)] == [3, 2, 4, 0, 3]


def test_score_equal_to_threshold_is_kept(tmp_path: Path) -> None:
    model = detector(write(tmp_path, graphs.raw([[8, 8, 4, 4, 0.5, 0, 0]])))
    assert [len(found.labels) for found in model([detection_input(WIDE, 0.5), detection_input(WIDE, 0.51)])] == [1, 0]


@pytest.mark.parametrize("layout", ["raw", "nms"])
def test_padding_and_non_finite_candidates_are_dropped(tmp_path: Path, layout: str) -> None:
    nan, inf = float("nan"), float("inf")
    if layout == "raw":
        output = graphs.raw(
            [[8, 8, 4, 4, nan, 0, 0], [nan, 8, 4, 4, 0.9, 0, 0], [8, inf, 4, 4, 0.9, 0, 0], [9, 9, 4, 4, 0.3, 0, 0]]
        )
    else:
        output = graphs.rows(
            [[8, 8, 4, 4, nan, 0], [nan, 8, 4, 4, 0.9, 0], [8, 8, 4, 4, 0.9, nan], [7, 7, 9, 9, 0.3, 0]]
        )
    (found,) = detector(write(tmp_path, output))([detection_input(WIDE, 0)])
    assert found.scores.tolist() == pytest.approx([0.3])
    assert np.isfinite(found.boxes).all()


@pytest.mark.parametrize(("number", "reason"), [(4, "class number 4, but has only 3 labels"), (3e20, "class number")])
def test_class_without_label_is_model_failure(tmp_path: Path, number: float, reason: str) -> None:
    model = detector(write(tmp_path, graphs.rows([[8, 8, 9, 9, 0.9, number]])))
    with pytest.raises(InferenceError, match=reason):
        model([detection_input(WIDE)])
