"""Test DETR exports of transformers, RT-DETR and D-FINE, whose graphs scale boxes to the image size, and RF-DETR."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tasks.vision.contours import mask_of_contours
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

# The image is stretched to the input, so fractions of the input are fractions of the image.
WIDE = uniform_image(64, 128, 0)
BOXES = np.array([[[0.5, 0.5, 0.5, 0.25], [0.25, 0.25, 0.5, 0.5], [0.5, 0.5, 1, 1]]], np.float32)
# The softmax of log(PROBABILITIES) is PROBABILITIES.
PROBABILITIES = [[0.1, 0.7, 0.2], [0.6, 0.3, 0.1], [0.04, 0.06, 0.9]]
NAMES = {"0": "cat", "1": "dog"}


def write(folder: Path, logits: Any, model_type: str | None = None, names: Any = None, **options: Any) -> Path:
    if model_type is not None:
        config = {"architectures": ["XForObjectDetection"], "model_type": model_type, "id2label": names or NAMES}
        (folder / "config.json").write_text(json.dumps(config))
    outputs = {"logits": np.array([logits], np.float32), "pred_boxes": BOXES, "hidden": np.ones((1, 2), np.float32)}
    options.setdefault("shape", ("batch", 3, 64, 64))
    return graphs.constant(folder / "model.onnx", outputs, name="pixel_values", **options)


@pytest.mark.parametrize(("model_type", "batch"), [("detr", 1), ("yolos", "batch"), ("table-transformer", "batch")])
@pytest.mark.verifies("graphs with known answers", "detr")
def test_softmax_picks_likeliest_class_of_each_query(tmp_path: Path, model_type: str, batch: int | str) -> None:
    file = write(tmp_path, np.log(PROBABILITIES), model_type, shape=(batch, 3, 64, 64))
    assert facts_of(file)["left out"] == Fact("left out", "hidden [1, 2]", Origin.MODEL_FILE)
    model = detector(file)
    for found in model([detection_input(WIDE), detection_input(WIDE)]):
        assert_found(found, ("dog", 0.7, [32, 24, 96, 40]), ("cat", 0.6, [0, 0, 64, 32]))
    # The class of no object lowers scores, and is not returned.
    (every,) = model([detection_input(WIDE, 0.0)])
    assert (every.labels, every.scores.tolist()) == (["dog", "cat", "dog"], pytest.approx([0.7, 0.6, 0.06]))


@pytest.mark.parametrize("model_type", ["rt_detr", "d_fine", "conditional_detr"])
@pytest.mark.verifies("graphs with known answers", "detr-sigmoid")
def test_sigmoid_scores_each_class_separately(tmp_path: Path, model_type: str) -> None:
    names = {"0": "cat", "1": "dog", "2": "fox"}
    logits = [[graphs.logit(probability) for probability in row] for row in PROBABILITIES]
    found = detect(write(tmp_path, logits, model_type, names), WIDE, 0.25)
    assert_found(found, ("fox", 0.9, [0, 0, 128, 64]), ("dog", 0.7, [32, 24, 96, 40]), ("cat", 0.6, [0, 0, 64, 32]))


@pytest.mark.parametrize(("layout", "labels"), [("detr", ["dog", "cat"]), ("detr-sigmoid", ["cat", "dog", "fox"])])
def test_softmax_or_sigmoid_layout_can_be_declared(tmp_path: Path, layout: str, labels: list[str]) -> None:
    names = ["cat", "dog", "fox"][: 2 + (layout != "detr")]
    found = detect(write(tmp_path, np.log(PROBABILITIES) + 3), WIDE, 0.55, layout=layout, labels=names)
    assert set(found.labels) == set(labels)


def test_pixel_mask_input_is_filled_with_ones(tmp_path: Path) -> None:
    """Use a graph that adds five times the mean of the mask to the logit of class 0."""
    text = """
        (float[b, 3, h, w] pixel_values, int64[b, h, w] pixel_mask)
        => (float[b, 3, 3] logits, float[b, 3, 4] pred_boxes)
        <float[1, 1, 3] first = {5, 0, 0}, float[1, 3, 1] zeros = {0, 0, 0}, float[4] box = {0.5, 0.5, 0.5, 0.5}> {
            floats = Cast<to = 1>(pixel_mask)
            mean = ReduceMean<axes = [1, 2], keepdims = 1>(floats)
            added = Mul(mean, first)
            logits = Add(added, zeros)
            boxes = Mul(mean, box)
            pred_boxes = Add(boxes, zeros)
        }
    """
    file = graphs.parse(tmp_path / "model.onnx", text)
    power = np.exp(5)
    assert detect(file, WIDE, layout="detr").scores == pytest.approx([power / (power + 2)] * 3)
    fact = Fact("further input", "pixel_mask, filled in by the server", Origin.MODEL_FILE)
    assert facts_of(file, layout="detr")["further input"] == fact


def test_images_keep_aspect_ratio_if_graph_allows_any_size(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"size": {"shortest_edge": 40, "longest_edge": 70}, "image_mean": [0] * 3, "image_std": [1] * 3})
    )
    file = write(tmp_path, np.log(PROBABILITIES), "detr", shape=("batch", 3, "h", "w"))
    found = inspected(graphs.source(file))
    fact = Fact("size of each image", "shorter side to 40, longer to at most 70", Origin.PREPROCESSOR)
    assert fact in found.description.facts
    images = [uniform_image(64, 80, 0), uniform_image(300, 100, 0)]
    answers = [answer for image in images for answer in found.graph.run([image])]
    assert [(answer.height, answer.width) for answer in answers] == [(40, 50), (70, 32)]
    assert all_close(detect(file, uniform_image(300, 100, 0), 0.65).boxes, [[25, 112.5, 75, 187.5]])


def test_images_are_stretched_if_graph_has_fixed_size(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"shortest_edge": 800, "longest_edge": 1333}}')
    found = inspected(graphs.source(write(tmp_path, np.log(PROBABILITIES), "detr")))
    (answer,) = found.graph.run([uniform_image(300, 100, 0)])
    assert (answer.height, answer.width) == (64, 64)
    assert "size of each image" not in {fact.topic for fact in found.description.facts}


def test_model_with_single_class_is_read(tmp_path: Path) -> None:
    file = write(tmp_path, [[graphs.logit(0.7)], [graphs.logit(0.2)], [graphs.logit(0.9)]], "rt_detr", {"0": "cat"})
    assert_found(detect(file, WIDE), ("cat", 0.9, [0, 0, 128, 64]), ("cat", 0.7, [32, 24, 96, 40]))


SCALING_LABELS = ("cat", "dog")
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


def write_scaling(folder: Path, batch: str = "N", size: str = "int64", sides: str = "64, 64") -> Path:
    text = GRAPH.replace("BATCH", batch).replace("SIZE", size).replace("SIDES", sides)
    return graphs.parse(folder / "model.onnx", text)


@pytest.mark.parametrize(
    ("batch", "size", "sides"),
    [("N", "int64", "h, w"), ("1", "int32", "64, 64"), ("2", "int64", "64, 64"), ("2", "float", "64, 64")],
)
def test_boxes_are_in_pixels_of_each_image(tmp_path: Path, batch: str, size: str, sides: str) -> None:
    model = detector(write_scaling(tmp_path, batch, size, sides), labels=SCALING_LABELS)
    images = (uniform_image(100, 200, 0), uniform_image(80, 40, 0), uniform_image(64, 64, 0))
    wide, high, last = model([detection_input(image) for image in images])
    # The task clips boxes later.
    assert_found(wide, ("dog", 0.9, [50, 50, 100, 75]), ("cat", 0.8, [0, 0, 25, 125]))
    assert all_close(high.boxes, [[10, 40, 20, 60], [0, 0, 5, 100]])
    assert all_close(last.boxes, [[16, 32, 32, 48], [0, 0, 8, 80]])


def test_description_lists_input_filled_by_server(tmp_path: Path) -> None:
    facts = facts_of(write_scaling(tmp_path))
    assert facts["further input"].value == "orig_target_sizes, filled in by the server"
    assert facts["resize"] == Fact("resize", "stretch", Origin.CONVENTION)
    assert facts["mean"] == Fact("mean", "0, 0, 0", Origin.CONVENTION)


LABELS = ("cat", "dog", "fox")
RF_BOXES = [[0.5, 0.5, 0.5, 0.25], [0.25, 0.25, 0.5, 0.5], [0.95, 0.5, 0.2, 0.2], [0.5, 0.5, 1, 1]]
RF_SCORES = [
    # cat, dog, fox, background
    [0.9, 0.1, 0.7, 0.99],
    [0.2, 0.6, 0.3, 0.01],
    [0.1, 0.8, 0.1, 0.5],
    [0.1, 0.2, 0.1, 0.5],
]
RF_EXPECTED = [
    ("cat", 0.9, [32, 24, 96, 40]),
    ("dog", 0.8, [108.8, 25.6, 134.4, 38.4]),
    ("fox", 0.7, [32, 24, 96, 40]),
    ("dog", 0.6, [0, 0, 64, 32]),
]


def rf_outputs(masks: Any = None) -> dict[str, Any]:
    logits = [[graphs.logit(score) for score in row] for row in RF_SCORES]
    found = {"dets": np.array([RF_BOXES], np.float32), "labels": np.array([logits], np.float32)}
    return found if masks is None else {**found, "masks": masks}


def write_rf(folder: Path, shape: tuple[Any, ...] = ("batch", 3, 64, 64), **options: Any) -> Path:
    return graphs.constant(folder / "model.onnx", rf_outputs(options.pop("masks", None)), shape=shape, **options)


@pytest.mark.parametrize(("batch", "half"), [("batch", False), (1, True), (2, False)])
@pytest.mark.verifies("graphs with known answers", "rf-detr")
def test_best_query_class_pairs_are_returned(tmp_path: Path, batch: int | str, half: bool) -> None:
    output_types = dict.fromkeys(("dets", "labels"), TensorProto.FLOAT16) if half else None
    model = detector(write_rf(tmp_path, (batch, 3, 64, 64), output_types=output_types), labels=LABELS)
    # There are no more pairs than queries.
    for found in model([detection_input(WIDE), detection_input(WIDE, 0.0), detection_input(WIDE)]):
        assert_found(found, *RF_EXPECTED, tolerance=0.1 if half else 1e-3)
        assert (found.scores.dtype, found.boxes.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize(("labels", "best"), [(None, "3"), (("cat", "dog", "fox", "owl"), "owl")])
def test_no_background_without_labels_or_with_label_for_each_output(tmp_path: Path, labels: Any, best: str) -> None:
    found = detect(write_rf(tmp_path), WIDE, 0.95, labels=labels)
    assert (found.labels, found.scores.tolist()) == ([best], pytest.approx([0.99]))


def test_class_names_are_read_from_rfdetr_metadata(tmp_path: Path) -> None:
    metadata = {"class_id_to_name": {"0": "cat", "2": "fox"}, "means": [0, 0, 0], "stds": [1, 1, 1], "task": "detect"}
    file = write_rf(tmp_path, properties={"rfdetr_inference": json.dumps(metadata)})
    assert detect(file, WIDE).labels == ["cat", "fox"]
    facts = facts_of(file)
    assert facts["labels"] == Fact("labels", "2: cat, fox", Origin.MODEL_FILE)
    assert facts["mean"] == Fact("mean", "0, 0, 0", Origin.CONVENTION)


@pytest.mark.parametrize("text", ["{", "[]", '{"means": [1]}', '{"class_id_to_name": {"a": "b"}}', "[" * 100_000])
def test_invalid_metadata_is_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelError, match="'rfdetr_inference' cannot be read") as caught:
        inspected(graphs.source(write_rf(tmp_path, properties={"rfdetr_inference": text})))
    assert len(str(caught.value).removeprefix(str(tmp_path))) < 300


def test_images_are_preprocessed_as_in_rf_detr(tmp_path: Path) -> None:
    facts = facts_of(write_rf(tmp_path), labels=LABELS)
    expected = {
        "background": "class 3 of 4 in the output, left out", "resize": "stretch", "mean": "0.485, 0.456, 0.406",
        "std": "0.229, 0.224, 0.225",
    }  # fmt: skip
    assert [facts[topic] for topic in expected] == [Fact(*item, Origin.CONVENTION) for item in expected.items()]


def test_masks_belong_to_their_queries(tmp_path: Path) -> None:
    masks = np.full((1, 4, 16, 16), -5, np.float32)
    masks[0, 0, 4:8, 4:12] = 5
    masks[0, 1, :, 8:] = 5
    found = segment(write_rf(tmp_path, masks=masks), WIDE, 0.65, labels=LABELS)
    assert found.labels == ["cat", "dog", "fox"]
    assert found.scores == pytest.approx([0.9, 0.8, 0.7])
    cat, dog, fox = (mask_of_contours(contours, 128, 64) for contours in found.contours)
    expected = np.zeros((64, 128), np.uint8)
    expected[16:32, 32:96] = 1
    # Interpolation puts the border half-way between cells, except at corners.
    assert (cat != expected).sum() < 0.02 * expected.sum()
    assert (fox == cat).all()
    # The third query, the dog, has an empty mask.
    assert not dog.any()


@pytest.mark.parametrize(("labels", "has_points"), [(["person"], True), (None, True), (["person", "dog"], False)])
def test_keypoints_of_one_class_belong_to_their_queries(tmp_path: Path, labels: Any, has_points: bool) -> None:
    points = np.zeros((1, 4, 17, 8), np.float32)
    points[0, 1, 3, :3] = [0.25, 0.5, graphs.logit(0.8)]
    outputs = rf_outputs()
    outputs = {**outputs, "labels": outputs["labels"][..., :2] - np.array([0, 9], np.float32), "keypoints": points}
    outputs["labels"][0, 1, 0] = graphs.logit(0.95)
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 64, 64))
    found = detect(file, WIDE, labels=labels)
    assert_found(found, ((labels or ["0"])[0], 0.95, [0, 0, 64, 32]), ((labels or ["0"])[0], 0.9, [32, 24, 96, 40]))
    if has_points:
        assert found.keypoints is not None
        assert all_close(found.keypoints[0, 3:5], [[32, 32, 0.8], [0, 0, 0.5]])
    else:
        assert found.keypoints is None
        assert facts_of(file, labels=labels)["left out"].value == "keypoints [1, 4, 17, 8]"


def test_non_finite_outputs_are_dropped(tmp_path: Path) -> None:
    nan = float("nan")
    broken = {
        "dets": np.array([[[0.5, 0.5, nan, 0.5], [0.5, 0.5, 0.5, 0.5]]], np.float32),
        "labels": np.array([[[5, 5], [nan, 3]]], np.float32),
    }
    file = graphs.constant(tmp_path / "model.onnx", broken, shape=("batch", 3, 64, 64))
    found = detect(file, WIDE, 0.0)
    assert found.labels == ["1"]
    assert np.isfinite(found.boxes).all()
