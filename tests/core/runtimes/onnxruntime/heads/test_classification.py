"""Test class scores with known values: mostly the means of the three channels, from graphs of several exporters."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from metadata.model import Fact, Origin
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    classification_input,
    classifier,
    facts_of,
    inspected,
    uniform_image,
)

NAMES = ("red", "green", "blue")
PROPERTIES = graphs.properties("classify", NAMES, (8, 8))
PLAIN: dict[str, Any] = {"mean": [0, 0, 0], "std": [1, 1, 1]}
COLOUR = classification_input(uniform_image(8, 8, 51, 102, 204))
BLACK = classification_input(uniform_image(8, 8, 0))


@pytest.mark.verifies("graphs with known answers", "classify", "other-classifiers", "classifiers")
def test_logits_are_normalised(tmp_path: Path) -> None:
    model = classifier(graphs.channel_means(tmp_path / "model.onnx", properties=PROPERTIES), layout="logits")
    (answer,) = model([COLOUR])
    powers = np.exp([0.2, 0.4, 0.8])
    assert answer.scores == pytest.approx(powers / powers.sum(), abs=1e-6)


def test_large_logits_do_not_overflow(tmp_path: Path) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {"logits": np.array([[1e4, 0, -1e4]], np.float32)})
    (answer,) = classifier(file)([BLACK])
    assert answer.scores.tolist() == [1, 0, 0]


@pytest.mark.parametrize(("batch", "count"), [("b", 0), ("b", 9), (1, 3), (2, 3), (3, 3), (16, 9)])
def test_answers_keep_order_for_every_batch_size(tmp_path: Path, batch: int | str, count: int) -> None:
    model = classifier(graphs.channel_means(tmp_path / "model.onnx", properties=PROPERTIES, shape=(batch, 3, 8, 8)))
    answers = model(
        [classification_input(uniform_image(10 + index, 30 - index, 25 * index, 0, 255)) for index in range(count)]
    )
    assert [round(float(answer.scores[0]) * 255) for answer in answers] == [25 * index for index in range(count)]


def channels_last_classifier(
    file: Path, shape: tuple[Any, ...] = ("b", 8, 8, 3), datatype: int = TensorProto.FLOAT
) -> Path:
    """Write a classifier of three classes that takes [b, h, w, 3] and gives the means of the channels."""
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats"], ["probs"], axes=[1, 2], keepdims=0),
    ]
    return graphs.write(file, nodes, {"probs": [shape[0], 3]}, shape=shape, datatype=datatype)


@pytest.mark.parametrize(
    ("batch", "datatype", "scale"),
    [("b", TensorProto.FLOAT, 1 / 255), (1, TensorProto.FLOAT16, 1 / 255), (2, TensorProto.UINT8, 1.0)],
)
def test_channels_last_are_recognised_by_shape(tmp_path: Path, batch: Any, datatype: int, scale: float) -> None:
    file = channels_last_classifier(tmp_path / "model.onnx", (batch, 8, 8, 3), datatype)
    settings = {} if datatype == TensorProto.UINT8 else {"preprocessing": PLAIN}
    found = classifier(file, **settings)(
        [classification_input(uniform_image(8, 12, 51, 102, 204)), classification_input(uniform_image(9, 7, 255, 0, 0))]
    )
    assert found[0].scores == pytest.approx([51 * scale, 102 * scale, 204 * scale], rel=1e-3)
    assert found[1].scores == pytest.approx([255 * scale, 0, 0], rel=1e-3)
    assert facts_of(file)["channels"] == Fact("channels", "last: [batch, height, width, 3]", Origin.SHAPES)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_extra_dimensions_and_other_precisions_are_read(tmp_path: Path, kind: int) -> None:
    output = np.array([[[[0.1]], [[0.7]], [[0.2]]]], np.float32)
    file = graphs.constant(tmp_path / "model.onnx", {"probs": output}, output_types={"probs": kind})
    (found,) = classifier(file, labels=NAMES)([BLACK])
    assert found.scores == pytest.approx([0.1, 0.7, 0.2], abs=1e-3)
    assert found.scores.dtype == np.float32


def write_timm_model(folder: Path, **overrides: Any) -> Path:
    pretrained_cfg = {"input_size": [3, 24, 24], "mean": [0.5] * 3, "std": [0.25] * 3, "crop_pct": 0.75, **overrides}
    config = {"architecture": "resnet18", "num_classes": 3, "label_names": NAMES, "pretrained_cfg": pretrained_cfg}
    (folder / "config.json").write_text(json.dumps(config))
    return graphs.channel_means(folder / "model.onnx", shape=("b", 3, "h", "w"))


@pytest.mark.verifies("graphs with known answers", "timm")
def test_timm_model_is_recognised_by_config(tmp_path: Path) -> None:
    file = write_timm_model(tmp_path)
    expected = {
        "labels": "3: red, green, blue", "input size": "24x24", "resize": "crop", "mean": "0.5, 0.5, 0.5",
        "crop": "shorter side to 32, then centre crop 24x24", "std": "0.25, 0.25, 0.25",
    }  # fmt: skip
    facts = facts_of(file)
    assert [facts[topic] for topic in expected] == [Fact(*item, Origin.CONFIG) for item in expected.items()]
    (found,) = classifier(file, layout="probabilities")([classification_input(uniform_image(40, 40, 255, 127, 0))])
    assert found.scores == pytest.approx([2, (127 / 255 - 0.5) / 0.25, -2], abs=1e-6)


@pytest.mark.parametrize(("classes", "task_type"), [(3, "IMAGE_CLASSIFICATION"), (0, "TENSOR")])
def test_timm_config_without_labels_shows_whether_there_are_classes(
    tmp_path: Path, classes: int, task_type: str
) -> None:
    file = write_timm_model(tmp_path)
    config = {"architecture": "resnet18", "num_classes": classes, "pretrained_cfg": {"input_size": [3, 24, 24]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert facts_of(file)["task type"] == Fact("task type", task_type, Origin.CONFIG)


@pytest.mark.parametrize(("mode", "resize"), [("squash", "stretch"), ("border", "letterbox"), (None, "crop")])
def test_timm_crop_mode_sets_resize(tmp_path: Path, mode: str | None, resize: str) -> None:
    facts = facts_of(write_timm_model(tmp_path, crop_mode=mode))
    assert facts["resize"] == Fact("resize", resize, Origin.CONFIG)


def test_crop_fraction_can_be_declared(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx", output="probs", shape=("b", 3, 24, 24))
    image = uniform_image(32, 32, 0)
    image.pixels[4:28, 4:28] = 255
    settings = {"preprocessing": {**PLAIN, "resize": "crop", "crop_fraction": 0.75}}
    (found,) = classifier(file, **settings)([classification_input(image)])
    assert found.scores == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("declared", [True, False])
def test_multi_label_scores_use_sigmoid(tmp_path: Path, declared: bool) -> None:
    if not declared:
        config = {"architectures": ["ViTForImageClassification"], "problem_type": "multi_label_classification"}
        (tmp_path / "config.json").write_text(json.dumps(config))
    logits = np.array([[graphs.logit(0.9), graphs.logit(0.8), graphs.logit(0.1)]], np.float32)
    file = graphs.constant(tmp_path / "model.onnx", {"logits": logits})
    (found,) = classifier(file, labels=NAMES, **({"layout": "multi-label"} if declared else {}))([BLACK])
    assert found.scores == pytest.approx([0.9, 0.8, 0.1], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "layout", "score"),
    [
        ("logits", 2.0, "multi-label", 1 / (1 + np.exp(-2))),
        ("output", -2.0, "multi-label", 1 / (1 + np.exp(2))),
        ("output", 0.25, "probabilities", 0.25),
    ],
)
def test_single_class_layout_and_score(tmp_path: Path, name: str, value: float, layout: str, score: float) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {name: np.array([[value]], np.float32)})
    assert inspected(graphs.source(file, labels=["cat"])).description.layout == layout
    (found,) = classifier(file, labels=["cat"])([BLACK])
    assert found.scores == pytest.approx([score])
