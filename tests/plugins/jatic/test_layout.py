"""Read JATIC_ONNX models: facts, files, settings, answers. `tests/clients/test_maite_tools.py` compares the scores."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.loading import load
from app.plugins.quantization.quantization import quantize
from app.public_api.in_process import InProcessModel
from metadata.model import Fact, Origin
from tasks.image_classification import Classification
from tasks.inference.error import InferenceError
from tasks.object_detection import Detections
from tests.core.runtimes.onnxruntime import graphs
from tests.support.models.jatic_models import (
    BOXES,
    LABELS,
    MIXES,
    metadata,
    write_classifier,
    write_detector,
    write_metadata,
)
from tests.support.servers.server_process import ROOT

WHITE = np.full((33, 47, 3), 255, np.uint8)
DETECTION, CLASSIFICATION = "IMAGE_OBJECT_DETECTION", "IMAGE_CLASSIFICATION"


def facts_of(file: Path, **settings: Any) -> dict[str, Fact]:
    return {fact.topic: fact for fact in load(graphs.source(file, **settings)).description.facts}


def settings_file(folder: Path, **settings: Any) -> None:
    (folder / "model-settings.json").write_text(json.dumps(settings))


def write_graph(folder: Path, outputs: Any = None, **options: Any) -> Path:
    """Write a graph with the names of the contract that answers the same for all images."""
    arguments: dict[str, Any] = {"name": "image", **options}
    return graphs.constant(folder / "model.onnx", outputs or {"boxes": BOXES, "scores": MIXES}, **arguments)


@pytest.mark.parametrize("write", [write_detector, write_classifier])
def test_every_fact_comes_from_the_model_and_none_is_guessed(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    facts = facts_of(write(tmp_path).graph)
    assert {fact.origin for fact in facts.values()} <= {Origin.MODEL_FILE, Origin.CONVENTION}
    assert facts["metadata"].value == "JATIC_ONNX v1 in model-metadata.json"
    expected = {
        "input size": "10x20", "resize": "stretch", "interpolation": "bilinear", "antialiasing": "no, as OpenCV",
        "scale": "1/255", "mean": "0, 0, 0", "std": "1, 1, 1", "channel order": "RGB", "batch": "any number of images",
    }  # fmt: skip
    assert {topic: facts[topic].value for topic in expected} == expected
    assert facts["labels"].value.startswith("3: Background, person" if write is write_detector else "12: pixel 0")


@pytest.mark.verifies("graphs with known answers", "jatic")
def test_boxes_are_fractions_of_the_image_and_background_is_left_out(tmp_path: Path) -> None:
    model = write_detector(tmp_path)
    assert facts_of(model.graph)["background"] == Fact("background", "class 0, left out", Origin.MODEL_FILE)
    (found,) = InProcessModel(tmp_path).predict([WHITE], score_threshold=0.0)
    assert isinstance(found, Detections)
    assert list(found.labels) == ["person"]
    assert found.scores.tolist() == pytest.approx([0.6])
    assert found.boxes.tolist() == [pytest.approx([0, 3.3, 23.5, 33], abs=1e-3)]
    # A class of another name is returned.
    write_detector(tmp_path, labels=["road", "person", "vehicle"])
    (every,) = InProcessModel(tmp_path).predict([WHITE], score_threshold=0.0)
    assert isinstance(every, Detections)
    assert list(every.labels) == ["road", "person", "road"]
    assert every.boxes.tolist()[0] == pytest.approx([23.5, 0, 47, 8.25], abs=1e-3)


def test_boxes_that_are_not_finite_are_left_out_and_clipped(tmp_path: Path) -> None:
    # A black image has valid boxes, as the load requires.
    text = """
        (float[1, 3, 8, 8] image) => (float[1, 2, 4] boxes, float[1, 2, 2] scores)
        <float[1, 2, 4] corners = {-1, -1, -0.5, -0.5, -1, -1, -0.5, -0.5}, float[1, 2, 4] gains =
         {0, 0, 1, 1, 0, 0, 1, 1000}, float[1, 2, 2] values = {0.75, 0.25, 0.75, 0.25}> {
            white = ReduceMax<keepdims = 0>(image)
            powers = Mul(white, gains)
            shifts = Exp(powers)
            boxes = Add(corners, shifts)
            scores = Identity(values)
        }
    """
    graphs.parse(tmp_path / "model.onnx", text)
    write_metadata(tmp_path, metadata(DETECTION, ["a", "b"], input={}))
    (found,) = InProcessModel(tmp_path).predict([WHITE])
    assert isinstance(found, Detections)
    assert found.boxes.tolist() == [[0, 0, 47, 33]]


@pytest.mark.parametrize("name", ["model-metadata.json", "model.json", "model_metadata.json"])
def test_metadata_is_found_by_its_content(tmp_path: Path, name: str) -> None:
    model = write_detector(tmp_path)
    model.metadata.rename(tmp_path / name)
    (tmp_path / "model-metadata.json").touch()
    # The metadata of one graph precedes that of the folder.
    if name == "model.json":
        write_metadata(tmp_path, metadata(DETECTION, ["d", "e", "f"]), "model-metadata.json")
    assert facts_of(model.graph)["metadata"].value.endswith(name)


def test_quantised_version_keeps_the_metadata(tmp_path: Path) -> None:
    filters = "float[3, 3, 1, 1] filters = {1, 0, 0, 0, 1, 0, 0, 0, 1}"
    text = f"""(float[b, 3, 10, 20] image) => (float[b, 3] scores) <{filters}> {{
        features = Conv(image, filters)
        means = ReduceMean<axes = [2, 3], keepdims = 0>(features)
        scores = Softmax(means)
    }}"""
    source = graphs.source(graphs.parse(tmp_path / "boats.onnx", text))
    write_metadata(tmp_path, metadata(CLASSIFICATION, ["a", "b", "c"]), "boats_metadata.json")
    # quantize wants 50 images.
    images = [tmp_path / f"{number}.jpg" for number in range(50)]
    for image in images:
        image.symlink_to(ROOT / "fixtures" / "images" / "scene.jpg")
    quantize(source, images, tmp_path / "2", max_changed=1)
    facts = facts_of(tmp_path / "2" / "model.onnx")
    assert facts["metadata"].value == "JATIC_ONNX v1 in model-metadata.json"
    assert facts["labels"].value == "3: a, b, c"


def test_metadata_of_dataeval_needs_no_name_of_the_interface(tmp_path: Path) -> None:
    content = metadata(CLASSIFICATION, ["a", "b"])
    del content["interface"]
    outputs = {"scores": np.array([[0.25, 0.75]], np.float32)}
    named, other = tmp_path / "named", tmp_path / "other"
    for folder, name in ((named, "image"), (other, "pixels")):
        folder.mkdir()
        write_metadata(folder, content)
        file = write_graph(folder, outputs, shape=("b", 3, "h", "w"), name=name)
        assert load(graphs.source(file)).description.layout == ("jatic" if folder is named else "probabilities")


@pytest.mark.parametrize("content", ["{", '{"a": 1}', '{"interface": {"name": "OTHER"}}', '{"io": {"input": 5}}'])
def test_unrelated_files_are_ignored(tmp_path: Path, content: str) -> None:
    file = write_graph(tmp_path, {"scores": np.array([[0.25, 0.75]], np.float32)})
    (tmp_path / "model.json").write_text(content)
    assert load(graphs.source(file)).description.layout == "probabilities"


def test_files_of_other_exporters_do_not_change_the_contract(tmp_path: Path) -> None:
    names = {"properties": graphs.properties("classify", ["x", "y"], (32, 32)), "shape": ("b", 3, "h", "w")}
    file = write_graph(tmp_path, {"scores": np.array([[0.25, 0.75]], np.float32)}, **names)
    write_metadata(tmp_path, metadata(CLASSIFICATION, ["a", "b"]))
    (tmp_path / "labels.txt").write_text("v\nw\n")
    (tmp_path / "config.json").write_text('{"architectures": ["BertForMaskedLM"], "id2label": {"0": "z"}}')
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0.5, 0.5, 0.5], "size": {"shortest_edge": 8}}')
    facts = facts_of(file)
    assert [facts[topic].value for topic in ("labels", "input size", "mean")] == ["2: a, b", "10x20", "0, 0, 0"]


def test_graph_of_any_size_is_tried_with_the_size_in_the_metadata(tmp_path: Path) -> None:
    text = """
        (float[b, 3, h, w] image) => (float[b, 2] scores)
        <int64[2] row = {-1, 600}, int64[1] start = {0}, int64[1] end = {2}, int64[1] axis = {1}> {
            flat = Reshape(image, row)
            scores = Slice(flat, start, end, axis)
        }
    """
    graphs.parse(tmp_path / "model.onnx", text)
    write_metadata(tmp_path, metadata(CLASSIFICATION, ["a", "b"]))
    (found,) = InProcessModel(tmp_path).predict([WHITE])
    assert isinstance(found, Classification)
    assert found.scores.tolist() == pytest.approx([1, 1])


def test_calls_have_at_most_the_images_of_the_metadata(tmp_path: Path) -> None:
    # More than one image does not fit.
    text = """
        (float[b, 3, 4, 4] image) => (float[b, 3] scores) <int64[2] row = {1, 3}> {
            means = ReduceMean<axes = [2, 3], keepdims = 0>(image)
            scores = Reshape(means, row)
        }
    """
    graphs.parse(tmp_path / "model.onnx", text)
    write_metadata(tmp_path, metadata(CLASSIFICATION, ["r", "g", "b"], batchSize=1, input={}))
    assert len(InProcessModel(tmp_path).predict([WHITE, WHITE, WHITE])) == 3
    assert facts_of(tmp_path / "model.onnx")["images in a call"].value == "at most 1"


@pytest.mark.parametrize(
    ("sides", "shape", "size", "rule"),
    [
        ((-1, -1), ("b", 3, "h", "w"), "anyxany", "that of the image"),
        ((12, -1), ("b", 3, "h", "w"), "12xany", "height 12, otherwise that of the image"),
        ((-1, -1), ("b", 3, "h", 20), "anyx20", "width 20, otherwise that of the image"),
        ((-1, -1), ("b", 3, 12, 20), "12x20", None),
    ],
)
def test_sides_of_the_image_are_kept(
    tmp_path: Path, sides: tuple[int, int], shape: Sequence[int | str], size: str, rule: str | None
) -> None:
    model = write_classifier(tmp_path, shape=shape, input={"height": sides[0], "width": sides[1]})
    facts = facts_of(model.graph)
    assert facts["input size"] == Fact("input size", size, Origin.MODEL_FILE)
    assert (facts["size of each image"].value if "size of each image" in facts else None) == rule


def test_declared_resize_of_a_side_of_the_image_is_reported_with_a_guessed_size(tmp_path: Path) -> None:
    model = write_classifier(tmp_path, input={"height": -1, "width": -1})
    facts = facts_of(model.graph, preprocessing={"resize": "stretch"})
    assert facts["input size"] == Fact("input size", "224x224", Origin.GUESSED)


def test_settings_precede_the_metadata(tmp_path: Path) -> None:
    write_detector(tmp_path, labels=["0", "1", "2"])
    settings_file(tmp_path, labels=LABELS, preprocessing={"size": [12, 24]}, parameters={"score_threshold": 0.7})
    model = InProcessModel(tmp_path)
    facts = {fact.topic: fact for fact in model.description.facts}
    assert facts["labels"] == Fact("labels", "3: Background, person, vehicle", Origin.DECLARED)
    assert facts["input size"] == Fact("input size", "12x24", Origin.DECLARED)
    assert (len(model.ask(WHITE)), "score threshold" in facts) == (0, False)


def test_scores_outside_the_unit_interval_fail_the_request(tmp_path: Path) -> None:
    write_classifier(tmp_path, gain=2)
    with pytest.raises(InferenceError, match=r"scores of 2 to 2; JATIC_ONNX expects probabilities in 0\.\.1"):
        InProcessModel(tmp_path).ask(WHITE)
