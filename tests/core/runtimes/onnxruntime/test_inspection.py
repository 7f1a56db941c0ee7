"""Test the description of a model before it is loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import inspected

NAMES = ("cat", "dog", "fox")


def test_ultralytics_metadata_describes_model_completely(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx", properties=graphs.properties("classify", NAMES, (8, 8)))
    description = inspected(graphs.source(file)).description
    assert description.task_type is TaskType.IMAGE_CLASSIFICATION
    assert (description.platform, description.layout, description.labels) == ("onnx", "probabilities", NAMES)
    assert description.inputs == (TensorSpec(name="images", datatype=Datatype.FP32, shape=(-1, 3, 8, 8)),)
    assert description.outputs == (TensorSpec(name="output0", datatype=Datatype.FP32, shape=(-1, 3)),)
    assert description.properties == graphs.properties("classify", NAMES, (8, 8))
    assert list(description.facts) == [
        Fact("task type", "IMAGE_CLASSIFICATION", Origin.MODEL_FILE),
        Fact("layout", "probabilities, outputs output0 [1, 3]", Origin.MODEL_FILE),
        Fact("labels", "3: cat, dog, fox", Origin.MODEL_FILE),
        Fact("input size", "8x8", Origin.MODEL_FILE),
        Fact("resize", "crop", Origin.MODEL_FILE),
        Fact("interpolation", "bilinear", Origin.MODEL_FILE),
        Fact("antialiasing", "yes, as Pillow", Origin.MODEL_FILE),
        Fact("scale", "1/255", Origin.MODEL_FILE),
        Fact("mean", "0, 0, 0", Origin.MODEL_FILE),
        Fact("std", "1, 1, 1", Origin.MODEL_FILE),
        Fact("channel order", "RGB", Origin.MODEL_FILE),
        Fact("batch", "any number of images", Origin.MODEL_FILE),
        Fact("input datatype", "FP32", Origin.MODEL_FILE),
    ]


def test_description_of_the_exporter_is_a_fact_on_one_line(tmp_path: Path) -> None:
    properties = graphs.properties("classify", NAMES, (8, 8), description="Trained on\n  pets. " + "x" * 400)
    file = graphs.channel_means(tmp_path / "model.onnx", properties=properties)
    fact = inspected(graphs.source(file)).description.facts[-1]
    assert (fact.topic, fact.origin) == ("description", Origin.MODEL_FILE)
    assert fact.value.startswith("Trained on pets. xxx")
    assert len(fact.value) <= 300


@pytest.mark.parametrize(("softmax", "layout"), [(True, "probabilities"), (False, "logits")])
def test_blank_image_distinguishes_probabilities_from_logits(tmp_path: Path, softmax: bool, layout: str) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx", softmax=softmax)
    description = inspected(graphs.source(file, labels=NAMES)).description
    assert description.layout == layout
    assert Fact("layout", f"{layout}, outputs output0 [1, 3]", Origin.GUESSED) in description.facts


def test_classes_without_names_are_labelled_by_number(tmp_path: Path) -> None:
    description = inspected(graphs.source(graphs.channel_means(tmp_path / "model.onnx", output="probs"))).description
    assert description.labels == ("0", "1", "2")
    assert Fact("labels", "none found, class numbers are used, 0..2", Origin.GUESSED) in description.facts


def test_labels_that_are_not_unicode_are_rejected(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx", properties={"names": repr({0: "a", 1: "\ud800", 2: "c"})})
    with pytest.raises(ModelError, match=r"model.onnx: its labels are not valid Unicode"):
        inspected(graphs.source(file))


def inspection_error(file: Path, **settings: Any) -> str:
    with pytest.raises(ModelError) as caught:
        inspected(graphs.source(file, **settings))
    message = str(caught.value)
    assert message.startswith(str(file))
    assert "\n" not in message
    return message


def test_wrong_number_of_labels_is_rejected(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx", properties=graphs.properties("classify", NAMES[:2], (8, 8)))
    assert "has 3 classes, but model file lists 2 labels" in inspection_error(file)
    assert "has 3 classes, but model-settings.json lists 4 labels" in inspection_error(
        file, labels=["a", "b", "c", "d"]
    )


def test_output_of_texts_is_rejected(tmp_path: Path) -> None:
    outputs, types = {"output0": np.ones((1, 3), np.float32)}, {"output0": TensorProto.STRING}
    message = inspection_error(graphs.constant(tmp_path / "model.onnx", outputs, output_types=types))
    assert "its output 'output0' is of datatype BYTES, which is not supported" in message


def test_huge_input_is_rejected(tmp_path: Path) -> None:
    known = graphs.properties("classify", NAMES, (1_000_000, 1_000_000))
    wide = graphs.channel_means(tmp_path / "wide.onnx", shape=("b", 3, "h", "w"), properties=known)
    assert "has more than" in inspection_error(wide)
    many = graphs.channel_means(tmp_path / "many.onnx", shape=(2_000_000_000, 3, 8, 8))
    assert "has more than" in inspection_error(many)


def test_unusable_input_size_error_names_setting_to_declare(tmp_path: Path) -> None:
    flat = helper.make_node("Flatten", ["images"], ["flat"])
    nodes = [flat, helper.make_node("MatMul", ["flat", "weights"], ["output0"])]
    weights = {"weights": np.ones((3 * 16 * 16, 2), np.float32)}
    file = graphs.write(
        tmp_path / "model.onnx", nodes, {"output0": ["b", 2]}, constants=weights, shape=("b", 3, "h", "w")
    )
    message = inspection_error(file)
    assert "cannot run on a 224x224 image" in message
    assert '{"preprocessing": {"size": [height, width]}}' in message
    assert inspected(graphs.source(file, labels=["a", "b"], preprocessing={"size": [16, 16]}))
