"""Classifiers of other exporters: timm, TensorFlow's order of dimensions, spare dimensions, half precision."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from app.engine.description import Fact, Origin
from tests.app.runtimes.onnxruntime import graphs
from tests.app.runtimes.onnxruntime.answers import classifier, flat, inspected, shown

NAMES = ("red", "green", "blue")
PLAIN: dict[str, Any] = {"mean": [0, 0, 0], "std": [1, 1, 1]}


def last(file: Path, shape: tuple[Any, ...] = ("b", 8, 8, 3), datatype: int = TensorProto.FLOAT) -> Path:
    """A classifier of three classes that takes [b, h, w, 3]: the means of the channels."""
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats"], ["probs"], axes=[1, 2], keepdims=0),
    ]
    return graphs.write(file, nodes, {"probs": [shape[0], 3]}, shape=shape, datatype=datatype)


@pytest.mark.parametrize("batch", ["b", 1, 2])
@pytest.mark.parametrize(
    ("datatype", "scale"), [(TensorProto.FLOAT, 1 / 255), (TensorProto.FLOAT16, 1 / 255), (TensorProto.UINT8, 1.0)]
)
def test_channels_last_are_told_from_the_shape(tmp_path: Path, batch: Any, datatype: int, scale: float) -> None:
    file = last(tmp_path / "model.onnx", (batch, 8, 8, 3), datatype)
    settings = {} if datatype == TensorProto.UINT8 else {"preprocessing": PLAIN}
    found = classifier(file, **settings)([shown(flat(8, 12, 51, 102, 204)), shown(flat(9, 7, 255, 0, 0))])
    assert found[0].scores == pytest.approx([51 * scale, 102 * scale, 204 * scale], rel=1e-3)
    assert found[1].scores == pytest.approx([255 * scale, 0, 0], rel=1e-3)
    facts = inspected(graphs.source(file)).description.facts
    assert Fact("channels", "last: [batch, height, width, 3]", Origin.SHAPES) in facts


def test_channels_last_can_be_declared(tmp_path: Path) -> None:
    file = last(tmp_path / "model.onnx", ("b", "h", "w", "c"))
    settings = {"preprocessing": {**PLAIN, "channels_last": True, "size": [6, 10], "resize": "stretch"}}
    (found,) = classifier(file, **settings)([shown(flat(20, 30, 51, 102, 204))])
    assert found.scores == pytest.approx([0.2, 0.4, 0.8])


def test_blue_first_and_channels_last(tmp_path: Path) -> None:
    settings = {"preprocessing": {**PLAIN, "channel_order": "BGR"}}
    (found,) = classifier(last(tmp_path / "model.onnx"), **settings)([shown(flat(8, 8, 51, 102, 204))])
    assert found.scores == pytest.approx([0.8, 0.4, 0.2])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_spare_dimensions_and_other_precisions(tmp_path: Path, kind: int) -> None:
    output = np.array([[[[0.1]], [[0.7]], [[0.2]]]], np.float32)
    file = graphs.constant(tmp_path / "model.onnx", {"probs": output}, kinds={"probs": kind})
    (found,) = classifier(file, labels=NAMES)([shown(flat(8, 8, 0))])
    assert found.scores == pytest.approx([0.1, 0.7, 0.2], abs=1e-3)
    assert found.scores.dtype == np.float32


def test_outputs_beside_the_logits_are_not_read(tmp_path: Path) -> None:
    outputs = {"logits": np.array([[0, 5, 0]], np.float32), "hidden": np.full((1, 4, 2), np.nan, np.float32)}
    (found,) = classifier(graphs.constant(tmp_path / "model.onnx", outputs))([shown(flat(8, 8, 0))])
    assert found.scores.argmax() == 1


def timm(folder: Path, **others: Any) -> Path:
    wanted = {"input_size": [3, 24, 24], "mean": [0.5] * 3, "std": [0.25] * 3, "crop_pct": 0.75, **others}
    config = {"architecture": "resnet18", "num_classes": 3, "label_names": NAMES, "pretrained_cfg": wanted}
    (folder / "config.json").write_text(json.dumps(config))
    return graphs.channel_means(folder / "model.onnx", shape=("b", 3, "h", "w"))


def test_a_timm_model_is_known_by_its_config(tmp_path: Path) -> None:
    file = timm(tmp_path)
    facts = {fact.topic: (fact.value, fact.origin) for fact in inspected(graphs.source(file)).description.facts}
    assert facts["labels"] == ("3: red, green, blue", Origin.CONFIG)
    assert facts["input size"] == ("24x24", Origin.CONFIG)
    assert facts["resize"] == ("crop", Origin.CONFIG)
    assert facts["crop"] == ("shorter side to 32, then centre crop 24x24", Origin.CONFIG)
    assert facts["mean"] == ("0.5, 0.5, 0.5", Origin.CONFIG)
    assert facts["std"] == ("0.25, 0.25, 0.25", Origin.CONFIG)
    (found,) = classifier(file, layout="probabilities")([shown(flat(40, 40, 255, 127, 0))])
    assert found.scores == pytest.approx([2, (127 / 255 - 0.5) / 0.25, -2], abs=1e-6)


def test_the_centre_that_timm_keeps(tmp_path: Path) -> None:
    """A picture of 32x32 is not resized, and 4 pixels are cut off on each side."""
    picture = flat(32, 32, 0)
    picture.pixels[4:28, 4:28] = 255
    (found,) = classifier(timm(tmp_path), layout="probabilities")([shown(picture)])
    assert found.scores == pytest.approx([2, 2, 2])


@pytest.mark.parametrize(("mode", "resize"), [("squash", "stretch"), ("border", "letterbox"), (None, "crop")])
def test_the_crop_modes_of_timm(tmp_path: Path, mode: str | None, resize: str) -> None:
    found = inspected(graphs.source(timm(tmp_path, crop_mode=mode))).description.facts
    assert Fact("resize", resize, Origin.CONFIG) in found


def test_how_much_is_kept_can_be_declared(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx", output="probs", shape=("b", 3, 24, 24))
    picture = flat(32, 32, 0)
    picture.pixels[4:28, 4:28] = 255
    settings = {"preprocessing": {**PLAIN, "resize": "crop", "crop_fraction": 0.75}}
    (found,) = classifier(file, **settings)([shown(picture)])
    assert found.scores == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("declared", [True, False])
def test_classes_that_do_not_exclude_each_other(tmp_path: Path, declared: bool) -> None:
    if not declared:
        config = {"architectures": ["ViTForImageClassification"], "problem_type": "multi_label_classification"}
        (tmp_path / "config.json").write_text(json.dumps(config))
    logits = np.array([[graphs.logit(0.9), graphs.logit(0.8), graphs.logit(0.1)]], np.float32)
    file = graphs.constant(tmp_path / "model.onnx", {"logits": logits})
    (found,) = classifier(file, labels=NAMES, **({"layout": "multi-label"} if declared else {}))([shown(flat(8, 8, 0))])
    assert found.scores == pytest.approx([0.9, 0.8, 0.1], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "layout", "score"),
    [
        ("logits", 2.0, "multi-label", 1 / (1 + np.exp(-2))),
        ("output", -2.0, "multi-label", 1 / (1 + np.exp(2))),
        ("output", 0.25, "probabilities", 0.25),
    ],
)
def test_one_class_alone(tmp_path: Path, name: str, value: float, layout: str, score: float) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {name: np.array([[value]], np.float32)})
    assert inspected(graphs.source(file)).description.layout == layout
    (found,) = classifier(file, labels=["cat"])([shown(flat(8, 8, 0))])
    assert found.scores == pytest.approx([score])
