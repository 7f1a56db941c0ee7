"""Test graphs that give class numbers for each cell, without probabilities."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from metadata.model import Fact, Origin
from tasks.inference.error import InferenceError
from tasks.vision.contours import mask_of_contours
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import facts_of, segment, segmentation_input, segmenter, uniform_image

LABELS = ("ground", "tree", "car")
PROPERTIES = graphs.properties("semantic", LABELS, (8, 8))


def write(folder: Path, channels: int | None = None, kind: int = TensorProto.UINT8, top: int = 2) -> Path:
    """Write a map: rows 0 to 3 have class 0 and a square of class `top`, rows 4 to 7 have class 1."""
    numbers = np.zeros((1, 8, 8), np.float32)
    numbers[0, 4:] = 1
    numbers[0, 2:4, 6:] = top
    outputs: dict[str, Any] = {"output0": numbers if channels is None else numbers[:, np.newaxis]}
    options: dict[str, Any] = {"shape": ("batch", 3, 8, 8), "output_types": {"output0": kind}}
    return graphs.constant(folder / "model.onnx", outputs, properties=PROPERTIES, **options)


@pytest.mark.parametrize(
    ("channels", "kind"), [(None, TensorProto.UINT8), (1, TensorProto.INT32), (1, TensorProto.INT64)]
)
def test_each_pixel_has_class_of_its_cell(tmp_path: Path, channels: int | None, kind: int) -> None:
    model = segmenter(write(tmp_path, channels, kind))
    # In a letterbox, a 64x32 image covers rows 2 to 5, with eight pixels per cell.
    for found in model([segmentation_input(uniform_image(32, 64, 0)), segmentation_input(uniform_image(32, 64, 0))]):
        assert found.labels == ["ground", "tree", "car"]
        assert found.scores.tolist() == [1, 1, 1]
        ground, tree, car = (mask_of_contours(contours, 64, 32) for contours in found.contours)
        assert tree[16:].all()
        assert not tree[:16].any()
        assert car[:16, 48:].all()
        assert ground[:16, :48].all()
        assert (ground + tree + car == 1).all()


def test_description_says_that_graph_gives_no_probabilities(tmp_path: Path) -> None:
    value = "1 for each class found, because the graph gives no probabilities"
    assert facts_of(write(tmp_path))["scores"] == Fact("scores", value, Origin.SHAPES)


def test_class_without_label_is_model_failure(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="class number 7, but has only 3 labels"):
        segment(write(tmp_path, top=7), uniform_image(32, 64, 0))


def test_map_with_too_many_classes_is_model_failure(tmp_path: Path) -> None:
    outputs = {"depth": np.arange(4096, dtype=np.float32).reshape(1, 64, 64)}
    output_types = {"depth": TensorProto.INT64}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 64, 64), output_types=output_types)
    with pytest.raises(InferenceError, match="4096 class numbers for one image"):
        segment(file, uniform_image(64, 64, 0))


def test_map_finer_than_image_may_leave_class_without_pixels(tmp_path: Path) -> None:
    """Map 8x8 cells to an image of 2x2 pixels: the class of one cell lies under no pixel centre."""
    numbers = np.zeros((1, 8, 8), np.float32)
    numbers[0, :, 4:] = 1
    numbers[0, 4, 3] = 2
    output_types = {"output0": TensorProto.INT32}
    file = graphs.constant(tmp_path / "model.onnx", {"output0": numbers}, output_types=output_types)
    found = segment(file, uniform_image(2, 2, 0))
    assert [len(contours) for contours in found.contours] == [1, 1, 0]
    assert (mask_of_contours(found.contours[1], 2, 2) == [[0, 1], [0, 1]]).all()
