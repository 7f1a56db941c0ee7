"""Test detectors whose outputs are boxes, scores and classes, of every exporter in `detector_exports`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import assert_found, detect, facts_of, segment, uniform_image
from tests.plugins.layouts.detector_exports import (
    CASES,
    HEIGHT,
    LABELS,
    OBJECTS,
    SCORES,
    WIDTH,
    Case,
    Outputs,
    effdet,
    input_boxes,
    mmdeploy,
    pairs,
    rows,
    tensorflow,
)  # fmt: skip

IMAGE = uniform_image(480, 640, 90)
ONE, LAST = (1, 3, HEIGHT, WIDTH), (1, HEIGHT, WIDTH, 3)


@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.exporter)
@pytest.mark.verifies("two objects in a stretched and in a letterboxed image", "exporters")
def test_boxes_of_exporter_are_in_the_image(case: Case, resize: str, tmp_path: Path) -> None:
    inputs: Any = [helper.make_tensor_value_info(name, kind, [1, width]) for name, (kind, width) in case.inputs.items()]
    options: dict[str, Any] = {"shape": case.shape, "datatype": case.datatype, "extra_inputs": inputs}
    file = graphs.fixed(tmp_path / "model.onnx", case.outputs(input_boxes(resize)), **options)
    settings: dict[str, Any] = {"labels": case.labels, "preprocessing": {"resize": resize}}
    if case.declared:
        settings |= {"layout": "detections", "detections": case.declared}
    found = detect(file, IMAGE, **settings)
    first, second = ("face", "face") if "face" in case.labels else ("dog", "cat")
    assert_found(found, (first, 0.9, OBJECTS[0]), (second, 0.8, OBJECTS[1]))


EMPTY = {"boxes": np.zeros((1, 9, 4), np.float32), "scores": np.zeros((1, 9), np.float32)}
NUMBERED = {**EMPTY, "labels": np.zeros((1, 9), np.int64)}
CANDIDATES, PAIRS = pairs(np.array(OBJECTS, np.float32))
DECLARE = r'declare \{"layout": "detections", '
CORNERS_OR_SWAPPED = '"boxes": "xyxy" or "yxyx"'


@pytest.mark.parametrize(
    ("outputs", "shape", "question"),
    [
        (NUMBERED, ONE, '"unit": "pixel" or "fraction", "background": 0 or "none"; ' + DECLARE),
        ({"output": np.zeros((0, 7), np.float32)}, ONE, '"rows": "box-score-class" or "box-class-score"; ' + DECLARE),
        ({f"x{number}": array for number, array in enumerate(NUMBERED.values())}, ONE, CORNERS_OR_SWAPPED),
        ({**NUMBERED, "num_detections": np.zeros((1, 1), np.int32)}, LAST, CORNERS_OR_SWAPPED),
        ({**tensorflow(np.array(OBJECTS)), "detection_classes:0": np.zeros((1, 3), np.int64)}, LAST, '"background": 0'),
        (effdet(np.array(OBJECTS)), ONE, r'readings: "background": 0 or "none"'),
        ({"boxes": CANDIDATES[None], "scores": PAIRS[None] * 9}, ONE, '"scores": "softmax" or "sigmoid"'),
        (
            {"a": EMPTY["boxes"], "b": EMPTY["scores"], "c": EMPTY["scores"]},
            ONE,
            r'"outputs": \["NAME OF BOXES", "NAME OF SCORES", "NAME OF CLASSES"\]',
        ),
    ],
)
def test_outputs_with_several_readings_are_rejected(
    outputs: Outputs, shape: tuple[int, ...], question: str, tmp_path: Path
) -> None:
    file = graphs.fixed(tmp_path / "model.onnx", outputs, shape=shape)
    with pytest.raises(ModelError, match=question):
        facts_of(file, labels=LABELS)


def test_declared_reading_needs_no_names(tmp_path: Path) -> None:
    names = dict(zip(("detection_boxes:0", "detection_scores:0", "detection_classes:0"), "abc", strict=True))
    found = tensorflow(input_boxes("stretch"))
    file = graphs.fixed(tmp_path / "model.onnx", {new: found[old] for old, new in names.items()}, shape=LAST)
    reading = {"boxes": "yxyx", "unit": "fraction", "background": 0}
    settings: dict[str, Any] = {"layout": "detections", "outputs": ["a", "b", "c"], "detections": reading}
    settings |= {"labels": LABELS, "preprocessing": {"resize": "stretch"}}
    # The number of objects is missing, so that the third one is returned, too.
    objects = ("dog", 0.9, OBJECTS[0]), ("cat", 0.8, OBJECTS[1]), ("fox", 0.99, [0, 0, 0, 0])
    assert_found(detect(file, IMAGE, **settings), *objects)
    assert facts_of(file, **settings)["boxes"].origin is Origin.DECLARED


@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
@pytest.mark.parametrize("size", [(28, 28), (HEIGHT, WIDTH)])
@pytest.mark.verifies("graphs with known answers", "detections")
def test_masks_of_boxes_or_of_the_input_become_contours(size: tuple[int, int], resize: str, tmp_path: Path) -> None:
    boxes, masks = input_boxes(resize), np.zeros((1, 3, *size), np.float32)
    masks[0, 0] = masks[0, 1, : size[0] // 2] = 1
    if size != (28, 28):
        masks[:] = 0
        for number, (left, top, right, bottom) in enumerate(boxes.round().astype(int)):
            masks[0, number, top : (bottom, (top + bottom) // 2)[number], left:right] = 1
    file = graphs.fixed(tmp_path / "model.onnx", {**mmdeploy(boxes), "masks": masks}, shape=(1, 3, HEIGHT, WIDTH))
    found = segment(file, IMAGE, labels=LABELS, preprocessing={"resize": resize})
    assert found.labels == ["dog", "cat"]
    for (contour,), box in zip(found.contours, (OBJECTS[0], [320, 120, 420, 260]), strict=True):
        corners = [*contour.min(axis=0), *(contour.max(axis=0) + 1)]
        assert corners == pytest.approx(box, abs=3 if size == (28, 28) else 1.5)
    options: dict[str, Any] = {"task_type": "OBJECT_DETECTION", "labels": LABELS}
    assert facts_of(file, **options)["left out"] == Fact(
        "left out", f"masks [1, 3, {size[0]}, {size[1]}]", Origin.MODEL_FILE
    )


def test_poses_of_yolo_nas_are_returned(tmp_path: Path) -> None:
    boxes = input_boxes("letterbox")
    points = np.concatenate([np.repeat(boxes[:, None, :2], 17, axis=1), np.full((2, 17, 1), 0.5)], axis=2)
    batched = {
        "num_predictions": np.array([[2]], np.int64), "post_nms_boxes": boxes[None], "post_nms_scores": SCORES[None],
        "post_nms_joints": points[None].astype(np.float32),
    }  # fmt: skip
    flat = {"flat_predictions": rows(np.zeros(2), boxes, SCORES, points)}
    for outputs in (batched, flat):
        named = {
            f"graph2_{name}": array.astype(array.dtype if "num" in name else np.float32)
            for name, array in outputs.items()
        }
        file = graphs.fixed(tmp_path / "model.onnx", named, shape=(1, 3, HEIGHT, WIDTH))
        found = detect(file, IMAGE, labels=["person"])
        assert_found(found, ("person", 0.9, OBJECTS[0]), ("person", 0.8, OBJECTS[1]))
        assert found.keypoints is not None
        assert found.keypoints[:, 3].tolist() == [[100, 60, 0.5], [320, 120, 0.5]]


SCALED = """
(float[1, 3, 256, 320] image, float[1, 2] im_shape, float[1, 2] scale_factor) => (float[n, 6] found, int32[1] bbox_num)
<float[1, 2] known = {1, 0.9}, float[1, 4] fractions = {0.25, 0.5, 0.5, 0.75}, int32[1] one = {1}> {
    height, width = Split<axis = 1>(im_shape)
    down, across = Split<axis = 1>(scale_factor)
    sides = Concat<axis = 1>(width, height, width, height)
    scales = Concat<axis = 1>(across, down, across, down)
    pixels = Mul(fractions, sides)
    boxes = Div(pixels, scales)
    found = Concat<axis = 1>(known, boxes)
    bbox_num = Identity(one)
}
"""
"""Boxes as PaddleDetection's DETR scales them: by the sides of the input, and back by the factors."""


def test_size_inputs_are_filled(tmp_path: Path) -> None:
    file = graphs.parse(tmp_path / "model.onnx", SCALED)
    found = detect(file, IMAGE, labels=["cat", "dog"], preprocessing={"resize": "stretch"})
    assert_found(found, ("dog", 0.9, [160, 240, 320, 360]))
