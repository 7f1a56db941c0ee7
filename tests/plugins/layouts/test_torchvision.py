"""Test torchvision's detectors and segmenters: outputs without a batch dimension, and auxiliary outputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    all_close,
    detection_input,
    detector,
    inspected,
    segmentation_input,
    segmenter,
    uniform_image,
)

NAMES = ["__background__", "cat", "dog"]
NHWC: dict[str, Any] = {"shape": (1, 8, 8, 3)}


def write_detector(folder: Path, shape: tuple[int | str, ...], **options: Any) -> Path:
    """Write a graph that returns one box over the left half of its input, and one without extent."""
    nodes = [
        helper.make_node("Shape", ["image"], ["sides"]),
        helper.make_node("Slice", ["sides", "start", "end"], ["height_width"]),
        helper.make_node("Cast", ["height_width"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Split", ["floats"], ["height", "width"]),
        helper.make_node("Mul", ["width", "half"], ["half_width"]),
        helper.make_node("Concat", ["zero", "zero", "half_width", "height"], ["box"], axis=0),
        helper.make_node("Reshape", ["box", "row"], ["one"]),
        helper.make_node("Concat", ["one", "empty"], ["boxes"], axis=0),
        helper.make_node("Identity", ["label_values"], ["labels"]),
        helper.make_node("Identity", ["score_values"], ["scores"]),
    ]
    constants = {
        "start": np.array([-2]),
        "end": np.array([2**31]),
        "half": np.array([0.5], np.float32),
        "zero": np.zeros(1, np.float32),
        "row": np.array([1, 4]),
        "empty": np.ones((1, 4), np.float32),
        "label_values": np.array([2, 1]),
        "score_values": np.array([0.9, 0.1], np.float32),
    }
    return graphs.write(
        folder / "model.onnx",
        nodes,
        {"boxes": ["n", 4], "labels": ["n"], "scores": ["n"]},
        constants=constants,
        shape=shape,
        name="image",
        output_types={"labels": TensorProto.INT64},
        **options,
    )


@pytest.mark.parametrize("shape", [(3, "h", "w"), (1, 3, "h", "w"), ("batch", 3, "h", "w")])
def test_detector_takes_each_image_in_its_own_size(tmp_path: Path, shape: tuple[int | str, ...]) -> None:
    file = write_detector(tmp_path, shape)
    found = detector(file, labels=NAMES)(
        [detection_input(uniform_image(40, 60, 0)), detection_input(uniform_image(30, 20, 0))]
    )
    assert [prediction.labels for prediction in found] == [["dog"], ["dog"]]
    assert all_close(found[0].boxes, [[0, 0, 30, 40]])
    assert all_close(found[1].boxes, [[0, 0, 10, 30]])


def test_detector_needs_no_settings(tmp_path: Path) -> None:
    servable = load(graphs.source(write_detector(tmp_path, (3, "h", "w"))))
    facts = {fact.topic: fact for fact in servable.description.facts}
    assert (servable.description.task_type, servable.description.layout) == (TaskType.OBJECT_DETECTION, "torchvision")
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
    return graphs.write(
        folder / "model.onnx",
        [helper.make_node("Identity", [f"{name}.value"], [name]) for name in values],
        {name: array.shape for name, array in values.items()},
        constants={f"{name}.value": array for name, array in values.items()},
        shape=(3, "h", "w"),
        name="image",
        output_types={"labels": TensorProto.INT64},
    )


def test_masks_of_mask_r_cnn_become_contours(tmp_path: Path) -> None:
    masks = np.zeros((2, 1, 40, 60), np.float32)
    masks[0, 0, 5:10, 10:20], masks[0, 0, 20:30, 30:40] = 0.8, 0.4
    file = write_two(tmp_path, {"masks": masks})
    (found,) = segmenter(file, labels=NAMES)([segmentation_input(uniform_image(40, 60, 0))])
    assert found.labels == ["cat"]
    (contour,) = found.contours[0]
    assert (contour.min(axis=0).tolist(), contour.max(axis=0).tolist()) == ([10, 5], [19, 9])


def test_mask_r_cnn_returns_boxes_if_the_task_is_declared(tmp_path: Path) -> None:
    file = write_two(tmp_path, {"masks": np.zeros((2, 1, 40, 60), np.float32)})
    options: dict[str, Any] = {"labels": NAMES, "task_type": "OBJECT_DETECTION"}
    (found,) = detector(file, **options)([detection_input(uniform_image(40, 60, 0))])
    assert all_close(found.boxes, [[0, 0, 20, 10]])
    facts = inspected(graphs.source(file, **options)).description.facts
    assert Fact("further output", "masks, left out", Origin.MODEL_FILE) in facts


def test_keypoints_of_keypoint_r_cnn_are_returned(tmp_path: Path) -> None:
    points = np.arange(2 * 17 * 3, dtype=np.float32).reshape(2, 17, 3)
    file = write_two(tmp_path, {"keypoints": points, "keypoints_scores": np.zeros((2, 17), np.float32)})
    (found,) = detector(file, labels=NAMES)([detection_input(uniform_image(40, 60, 0))])
    assert found.keypoints is not None
    assert all_close(found.keypoints[0], points[0].tolist())


def segments(folder: Path, outputs: dict[str, Any], **options: Any) -> Path:
    return graphs.constant(folder / "model.onnx", outputs, **options)


def test_auxiliary_output_of_segmenter_is_ignored(tmp_path: Path) -> None:
    out = np.zeros((1, 3, 8, 8), np.float32)
    out[0, 0], out[0, 2, :, :4] = 5, 9
    file = segments(tmp_path, {"out": out, "aux": -out})
    (found,) = segmenter(file, labels=NAMES)([segmentation_input(uniform_image(8, 8, 0))])
    assert sorted(found.labels) == ["__background__", "dog"]
    assert (
        Fact("further output", "aux, left out", Origin.CONVENTION) in inspected(graphs.source(file)).description.facts
    )


def test_outputs_can_be_chosen(tmp_path: Path) -> None:
    best, coarse = np.zeros((1, 2, 8, 8), np.float32), np.zeros((1, 2, 4, 4), np.float32)
    best[0, 1], coarse[0, 0] = 9, 9
    file = segments(tmp_path, {"coarse": coarse, "best": best})
    options: dict[str, Any] = {"task_type": "IMAGE_SEGMENTATION", "labels": ["a", "b"]}
    with pytest.raises(
        ModelError, match=r'declare the outputs to read, such as \{"outputs": \["best"\]\}.* are semantic \[b, nc'
    ):
        inspected(graphs.source(file, **options))
    (found,) = segmenter(file, outputs=["best"], **options)([segmentation_input(uniform_image(8, 8, 0))])
    assert found.labels == ["b"]
    with pytest.raises(ModelError, match="declares the outputs worst; those of the graph are coarse, best"):
        inspected(graphs.source(file, outputs=["worst"], **options))


def test_channels_last_class_scores_are_read(tmp_path: Path) -> None:
    scores = np.zeros((1, 8, 8, 3), np.float32)
    scores[..., 0], scores[:, :, :4, 2] = 5, 9
    file = segments(tmp_path, {"scores": scores}, **NHWC)
    model = segmenter(file, task_type="IMAGE_SEGMENTATION", labels=NAMES)
    (found,) = model([segmentation_input(uniform_image(8, 8, 0))])
    assert sorted(found.labels) == ["__background__", "dog"]
