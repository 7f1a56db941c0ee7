"""Test torchvision's outputs, without a batch dimension or beside others, and layouts with an objectness score."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    all_close,
    assert_found,
    detect,
    detection_input,
    detector,
    facts_of,
    inspected,
    segment,
    uniform_image,
)  # fmt: skip

NAMES = ["__background__", "cat", "dog"]


GRAPH = """
(float[SHAPE] image) => (float[n, 4] boxes, int64[n] labels, float[n] scores)
<int64[1] start = {-2}, int64[1] end = {2147483648}, int64[2] row = {1, 4}, float[1] half = {0.5}, float[1] zero = {0},
 float[1, 4] empty = {1, 1, 1, 1}, int64[2] dog_cat = {2, 1}, float[2] high_low = {0.9, 0.1}> {
    sides = Shape(image)
    height_width = Slice(sides, start, end)
    floats = Cast<to = 1>(height_width)
    height, width = Split(floats)
    half_width = Mul(width, half)
    box = Concat<axis = 0>(zero, zero, half_width, height)
    one = Reshape(box, row)
    boxes = Concat<axis = 0>(one, empty)
    labels = Identity(dog_cat)
    scores = Identity(high_low)
}
"""
"""It returns one box over the left half of its input, and one without extent."""


def write_detector(folder: Path, shape: str) -> Path:
    return graphs.parse(folder / "model.onnx", GRAPH.replace("SHAPE", shape))


@pytest.mark.parametrize("shape", ["3, h, w", "1, 3, h, w", "batch, 3, h, w"])
def test_detector_takes_each_image_in_its_own_size(tmp_path: Path, shape: str) -> None:
    images = [detection_input(uniform_image(*size, 0)) for size in ((40, 60), (30, 20))]
    first, second = detector(write_detector(tmp_path, shape), labels=NAMES)(images)
    assert_found(first, ("dog", 0.9, [0, 0, 30, 40]))
    assert_found(second, ("dog", 0.9, [0, 0, 10, 30]))


def test_detector_needs_no_settings(tmp_path: Path) -> None:
    servable = load(graphs.source(write_detector(tmp_path, "3, h, w")))
    facts = {fact.topic: fact for fact in servable.description.facts}
    assert (servable.description.task_type, servable.description.layout) == (TaskType.OBJECT_DETECTION, "detections")
    assert facts["size of each image"] == Fact("size of each image", "that of the image", Origin.CONVENTION)
    assert (facts["mean"].value, facts["std"].value, facts["scale"].value) == ("0, 0, 0", "1, 1, 1", "1/255")


def write_two(folder: Path, extra: dict[str, Any]) -> Path:
    """Write a graph with a box of a cat, one of a dog below the threshold, and further outputs."""
    values: dict[str, Any] = {
        "boxes": np.array([[0, 0, 20, 10], [0, 0, 5, 5]], np.float32),
        "labels": np.array([1, 2]),
        "scores": np.array([0.9, 0.2], np.float32),
        **extra,
    }
    return graphs.fixed(folder / "model.onnx", values, shape=(3, 40, 60), name="image")


def test_masks_of_mask_r_cnn_become_contours(tmp_path: Path) -> None:
    masks = np.zeros((2, 1, 40, 60), np.float32)
    masks[0, 0, 5:10, 10:20], masks[0, 0, 20:30, 30:40] = 0.8, 0.4
    file = write_two(tmp_path, {"masks": masks})
    found = segment(file, uniform_image(40, 60, 0), labels=NAMES)
    assert found.labels == ["cat"]
    (contour,) = found.contours[0]
    assert (contour.min(axis=0).tolist(), contour.max(axis=0).tolist()) == ([10, 5], [19, 9])


def test_mask_r_cnn_returns_boxes_if_the_task_is_declared(tmp_path: Path) -> None:
    file = write_two(tmp_path, {"masks": np.zeros((2, 1, 40, 60), np.float32)})
    options: dict[str, Any] = {"labels": NAMES, "task_type": "OBJECT_DETECTION"}
    assert all_close(detect(file, uniform_image(40, 60, 0), **options).boxes, [[0, 0, 20, 10]])
    fact = Fact("left out", "masks [2, 1, 40, 60]", Origin.MODEL_FILE)
    assert facts_of(file, **options)["left out"] == fact


def test_keypoints_of_keypoint_r_cnn_are_returned(tmp_path: Path) -> None:
    points = np.arange(2 * 17 * 3, dtype=np.float32).reshape(2, 17, 3)
    file = write_two(tmp_path, {"keypoints": points, "keypoints_scores": np.zeros((2, 17), np.float32)})
    found = detect(file, uniform_image(40, 60, 0), labels=NAMES)
    assert found.keypoints is not None
    assert all_close(found.keypoints[0], points[0].tolist())


@pytest.mark.verifies("graphs with known answers", "torchvision-segmenters")
def test_auxiliary_output_of_segmenter_is_ignored(tmp_path: Path) -> None:
    out = np.zeros((1, 3, 8, 8), np.float32)
    out[0, 0], out[0, 2, :, :4] = 5, 9
    file = graphs.constant(tmp_path / "model.onnx", {"out": out, "aux": -out})
    assert sorted(segment(file, uniform_image(8, 8, 0), labels=NAMES).labels) == ["__background__", "dog"]
    assert facts_of(file)["left out"] == Fact("left out", "aux [1, 3, 8, 8]", Origin.MODEL_FILE)


def test_outputs_can_be_chosen(tmp_path: Path) -> None:
    best, coarse = np.zeros((1, 2, 8, 8), np.float32), np.zeros((1, 2, 4, 4), np.float32)
    best[0, 1], coarse[0, 0] = 9, 9
    file = graphs.constant(tmp_path / "model.onnx", {"coarse": coarse, "best": best})
    options: dict[str, Any] = {"task_type": "IMAGE_SEGMENTATION", "labels": ["a", "b"]}
    advice = r'if it has one of .*semantic, .*; declare \{"outputs": \["NAME"\]\}'
    with pytest.raises(ModelError, match=advice):
        inspected(graphs.source(file, **options))
    assert segment(file, uniform_image(8, 8, 0), outputs=["best"], **options).labels == ["b"]
    with pytest.raises(ModelError, match="declares the outputs worst; those of the graph are coarse, best"):
        inspected(graphs.source(file, outputs=["worst"], **options))


def test_channels_last_class_scores_are_read(tmp_path: Path) -> None:
    scores = np.zeros((1, 8, 8, 3), np.float32)
    scores[..., 0], scores[:, :, :4, 2] = 5, 9
    file = graphs.constant(tmp_path / "model.onnx", {"scores": scores}, shape=(1, 8, 8, 3))
    found = segment(file, uniform_image(8, 8, 0), task_type="IMAGE_SEGMENTATION", labels=NAMES)
    assert sorted(found.labels) == ["__background__", "dog"]


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
@pytest.mark.verifies("graphs with known answers", "yolov5")
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


@pytest.mark.verifies("graphs with known answers", "yolox")
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
