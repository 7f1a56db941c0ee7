"""Test graphs of other frameworks, which a function runs."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.settings.model import ModelError
from app.plugins.layouts.graph_model import GraphModel
from tasks.image_segmentation import SegmentationParameters
from tasks.object_detection import DetectionParameters, Detections
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import detection_input, detector, uniform_image

Arrays = dict[str, NDArray[Any]]


def faces() -> Arrays:
    """Return the outputs of a face detector of MediaPipe, with two faces."""
    rows, logits = np.zeros((1, 896, 16), np.float32), np.full((1, 896, 1), -20, np.float32)
    for index, score in ((35, 0.9), (600, 0.6)):
        rows[0, index, :6] = [2, -2, 10, 20, 1, 1]
        logits[0, index] = graphs.logit(score)
    return {"regressors": rows, "classificators": logits}


def declare(folder: Path, **settings: Any) -> Path:
    (folder / "model-settings.json").write_text(json.dumps(settings))
    return folder


def records(prediction: Any) -> list[dict[str, Any]]:
    return msgspec.to_builtins(prediction.records())


@pytest.mark.parametrize("named", [True, False])
def test_outputs_are_decoded_as_those_of_an_onnx_file(tmp_path: Path, named: bool) -> None:
    outputs = faces()
    model = GraphModel(tmp_path, lambda _: outputs if named else [*outputs.values()], (1, 128, 128, 3))
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=(1, 128, 128, 3))
    image = uniform_image(256, 200, 0)
    (expected,) = detector(file)([detection_input(image)])
    found = model.predict(image.pixels, DetectionParameters())
    assert isinstance(found, Detections)
    assert len(records(found)) == 2
    assert records(found) == records(expected)
    assert len(records(model.predict(image.pixels, DetectionParameters(score_threshold=0.8)))) == 1


@pytest.mark.parametrize(("shape", "axis"), [((1, 3, 16, 16), 1), ((-1, 16, 16, 3), 3)])
def test_batch_has_the_declared_shape_and_preprocessing(tmp_path: Path, shape: tuple[int, ...], axis: int) -> None:
    batches: list[NDArray[np.float32]] = []

    def run(batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        batches.append(batch)
        return [np.ones((1, 1, 8, 8), np.float32)]

    declare(tmp_path, task_type="IMAGE_SEGMENTATION", preprocessing={"mean": [0, 0, 0], "std": [1, 1, 1]})
    model = GraphModel(tmp_path, run, shape)
    found = model.predict(np.full((20, 30, 3), (255, 0, 51), np.uint8), SegmentationParameters())
    assert batches[-1].shape == (1, *shape[1:])
    means = np.moveaxis(batches[-1], axis, 0).reshape(3, -1).mean(axis=1)
    assert means.tolist() == pytest.approx([1, 0, 0.2], abs=1e-5)
    assert [record["label"] for record in records(found)] == ["foreground"]


def test_labels_come_from_a_label_file_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    model = GraphModel(tmp_path, lambda _: [np.array([[0.2, 0.8]], np.float32)], (1, 3, 8, 8))
    found = records(model.predict(np.zeros((9, 9, 3), np.uint8)))
    assert [record["label"] for record in found] == ["cat", "dog"]


def test_unknown_outputs_are_rejected_with_what_to_declare(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"or one of IMAGE_CLASSIFICATION, .*IMAGE_SEGMENTATION"):
        GraphModel(tmp_path, lambda _: [np.ones((1, 1, 8, 8), np.float32)], (1, 3, 8, 8))
    declare(tmp_path, task_type="TENSOR", preprocessing={"resize": "stretch"})
    with pytest.raises(ModelError, match=r"Expected one of IMAGE_CLASSIFICATION, .* got TENSOR"):
        GraphModel(tmp_path, lambda _: [np.ones((1, 5), np.float32)], (1, 3, 8, 8))
    with pytest.raises(ModelError, match="datatype complex64"):
        GraphModel(tmp_path, lambda _: [np.ones((1, 5), np.complex64)], (1, 3, 8, 8))
