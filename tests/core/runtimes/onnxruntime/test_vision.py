"""Test vision models that are loaded and called as the engine does."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tasks.inference.error import InferenceError
from tasks.inference.response import Record
from tasks.object_detection import PosedObject
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs
from tests.support.data.requests import pixel_input, predict

IMAGE = pixel_input(np.full((64, 128, 3), 51, np.uint8))


def channel_means(folder: Path) -> Path:
    return graphs.channel_means(folder / "model.onnx", properties=graphs.properties("classify", "rgb", (8, 8)))


def records(file: Path, task_type: TaskType, **settings: object) -> Sequence[Record]:
    servable = load(graphs.source(file, **settings))
    assert servable.description.task_type is task_type
    (prediction,) = predict(servable, IMAGE)
    return prediction.records()


def test_graph_that_answers_one_of_two_images_is_model_failure(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["scores"], ["output0"])
    scores = np.array([[0.2, 0.3, 0.5]], np.float32)
    file = graphs.write(tmp_path / "model.onnx", [node], {"output0": [1, 3]}, constants={"scores": scores})
    servable = load(graphs.source(file))
    with pytest.raises(InferenceError, match=r"received 2 images and returned outputs of the shapes \[\[1, 3\]\]"):
        predict(servable, pixel_input(np.zeros((2, 8, 8, 3), np.uint8)))


def test_classifier_with_nan_outputs_does_not_load(tmp_path: Path) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {"scores": np.full((1, 3), np.nan, np.float32)})
    with pytest.raises(ModelError, match=r"cannot answer a blank image: .* not finite numbers"):
        load(graphs.source(file))


@pytest.mark.parametrize(
    "outputs",
    [
        {"output0": graphs.raw([[8, 8, 4, 4, math.nan]] * 64)},
        {"output0": graphs.rows([[8, 8, 4, 4, math.nan, 0]] * 300)},
        {"logits": np.full((1, 9, 3), np.nan, np.float32), "pred_boxes": np.ones((1, 9, 4), np.float32)},
    ],
)
def test_detector_with_nan_outputs_does_not_load(tmp_path: Path, outputs: Any) -> None:
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("b", 3, 64, 64))
    declared = {"task_type": "OBJECT_DETECTION", **({"layout": "detr"} if "logits" in outputs else {})}
    with pytest.raises(ModelError, match=r"cannot answer a blank image: .* all NaN"):
        load(graphs.source(file, **declared))


@pytest.mark.parametrize("suppressed", [False, True])
@pytest.mark.parametrize("numbers", [2, 3])
@pytest.mark.verifies("graphs with known answers", "pose")
def test_pose_model_returns_keypoints_in_image_pixels(tmp_path: Path, suppressed: bool, numbers: int) -> None:
    # The letterbox halves the image of 128x64 and puts it 16 pixels below the top.
    kept, other = [[30, 26, 0.9], [40, 20, 0.1]], [[1, 1, 1], [2, 2, 1]]
    flat = [[value for point in pose for value in point[:numbers]] for pose in (other, kept)]
    output = (
        graphs.rows([[0, 20, 9, 40, 0.25, 0, *flat[0]], [24, 20, 40, 40, 0.75, 0, *flat[1]]])
        if suppressed
        else graphs.raw([[5, 30, 9, 20, 0.25, *flat[0]], [32, 30, 16, 20, 0.75, *flat[1]]])
    )
    known = graphs.properties("pose", ("person",), (64, 64), kpt_shape=f"[2, {numbers}]")
    file = graphs.constant(tmp_path / "model.onnx", {"output0": output}, shape=("b", 3, 64, 64), properties=known)
    points = [[60, 20, 0.9][:numbers], [80, 8, 0.1][:numbers]]
    assert records(file, TaskType.OBJECT_DETECTION) == [PosedObject("person", 0.75, 48, 8, 80, 48, points)]
    servable = load(graphs.source(file))
    assert Fact("keypoints", f"2 of {numbers} numbers for each box", Origin.MODEL_FILE) in servable.description.facts
    (prediction,) = predict(servable, IMAGE, score_threshold=0.9)
    tensors = prediction.stack([prediction])
    assert [(spec.name, len(spec.shape)) for spec in servable.outputs] == [(one.name, one.data.ndim) for one in tensors]
    assert tensors[-1].shape == (1, 0, 2, numbers)
