"""Reject graphs and metadata files of JATIC_ONNX that contradict each other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.model import ModelError
from tests.core.runtimes.onnxruntime import graphs
from tests.support.models.jatic_models import BOXES, LABELS, MIXES, metadata, write_metadata

DETECTION, CLASSIFICATION = "IMAGE_OBJECT_DETECTION", "IMAGE_CLASSIFICATION"


def changed(field: str, value: object, task: str = DETECTION) -> dict[str, Any]:
    """Return metadata with one other field, such as ``io.batchSize``."""
    labels = LABELS if task == DETECTION else ("a", "b")
    content = json.loads(json.dumps(metadata(task, labels)))
    *parents, name = field.split(".")
    target = content
    for parent in parents:
        target = target[parent]
    target[name] = value
    return content


SCORES = {"scores": np.array([[0.25, 0.75]], np.float32)}
LOGITS = {"scores": np.array([[-2, 3.5]], np.float32)}
CUBES = {"scores": SCORES["scores"][..., np.newaxis]}
PIXEL_BOXES = {"boxes": BOXES * 640, "scores": MIXES}
SECOND = helper.make_tensor_value_info("sizes", TensorProto.INT64, ["b", 2])
ANY: dict[str, Any] = {"shape": ("b", 3, "h", "w")}
GREY = {"channels": "GRAYSCALE", "height": 10, "width": 20}


FREE, CLASSES = changed("io.input", {}), changed("io.input", {}, CLASSIFICATION)
OTHER_COUNT = {**changed("io.output", {"nClasses": 4}), "index2label": list("abcd")}


@pytest.mark.parametrize(
    ("content", "graph", "message"),
    [
        (changed("interface.version", "v2"), {}, "interface.version: Expected v1, got v2"),
        (changed("io.interface", "IMAGE_SEGMENTATION"), {}, "io.interface: Expected one of IMAGE_CLASSIFICATION, "),
        (changed("io.input.channels", "BGR"), {}, "io.input.channels: Expected one of RGB, GRAYSCALE, got 'BGR'"),
        (changed("io.input.height", 0), {}, "io.input.height: Expected a positive number, or -1 for any, got 0"),
        (changed("io.batchSize", True), {}, "io.batchSize: Expected `int`, got `bool`"),
        (changed("io.interface", CLASSIFICATION), {}, 'the outputs "scores", but the graph has "boxes" and "scores"'),
        (FREE, {"extra_inputs": (SECOND,)}, 'one input "image", but the graph has "image" and "sizes"'),
        (FREE, {"name": "images"}, 'one input "image", but the graph has "images"'),
        (FREE, {"datatype": TensorProto.FLOAT16}, "takes pixels of FP32 in 0..1, but the input is F"),
        (FREE, {"datatype": TensorProto.UINT8}, "takes pixels of FP32 in 0..1, but the input is U"),
        (FREE, {"shape": ("b", 3, 2, "h", "w")}, "height, width], but the input is [-1, 3, 2,"),
        (changed("io.input", GREY), {}, "has 3 channels, but model-metadata.json declares GRAYSCALE, which needs 1"),
        (changed("io.input", GREY), {"shape": ("b", "c", "h", "w")}, "any number of channels, but model-metadata.json"),
        (changed("io.input.height", 12), {"shape": ("b", 3, 10, 20)}, "has the height 10, but model-metadata.json"),
        (changed("index2label", None), {}, "index2label: Expected a label for each class"),
        (changed("index2label", {"0": "a", "2": "b", "3": "c"}), {}, "Expected the class numbers 0 to 2 as keys"),
        (changed("index2label", {"a": "a", "b": "b", "c": "c"}), {}, "Expected the class numbers 0 to 2 as keys"),
        (changed("index2label", ["a"]), {}, "its output has 3 classes, but model file lists 1 labels"),
        (changed("io.output", {"nClasses": 4}), {}, "nClasses is 4, but index2label has 3 labels"),
        (OTHER_COUNT, {}, "its scores have 3 classes, but model-metadata.json declares 4"),
        (changed("io.output", {"nBoxes": 5}), {}, "it returns 4 boxes, but model-metadata.json declares 5"),
        (FREE, {"outputs": PIXEL_BOXES}, "its boxes for a black image are 0 to 640, but JATIC_ONNX"),
        (CLASSES, {"outputs": LOGITS}, "its scores for a black image are -2 to 3.5, but"),
        (CLASSES, {"outputs": CUBES}, "its output scores is [1, 2, 1], but JATIC_ONNX expects [batch, classes]"),
    ],
)
def test_contradiction_is_rejected_at_load_with_the_reason(
    tmp_path: Path, content: object, graph: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {"outputs": {"boxes": np.zeros_like(BOXES), "scores": MIXES}, **ANY, **graph}
    options = {"name": "image", **options}
    outputs = {name: (base, np.zeros_like(base)) for name, base in options.pop("outputs").items()}
    file = graphs.affine(tmp_path / "model.onnx", outputs, **options)
    write_metadata(tmp_path, content)
    with pytest.raises(ModelError) as rejection:
        load(graphs.source(file))
    assert message in str(rejection.value)


def test_declared_layout_without_metadata_is_rejected_with_the_file_names(tmp_path: Path) -> None:
    file = graphs.constant(tmp_path / "model.onnx", SCORES, name="image")
    with pytest.raises(ModelError, match=r"no JATIC_ONNX file is beside the graph; expected one of model\.json, "):
        load(graphs.source(file, layout="jatic"))
