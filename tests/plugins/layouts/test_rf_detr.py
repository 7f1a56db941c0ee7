"""Test RF-DETR: boxes as fractions, a sigmoid per class, and a background class."""

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
    assert_found,
    detect,
    detection_input,
    detector,
    facts_of,
    inspected,
    segment,
    uniform_image,
)  # fmt: skip

LABELS = ("cat", "dog", "fox")
# The image is stretched to the input, so fractions of the input are fractions of the image.
WIDE = uniform_image(64, 128, 0)
BOXES = [[0.5, 0.5, 0.5, 0.25], [0.25, 0.25, 0.5, 0.5], [0.95, 0.5, 0.2, 0.2], [0.5, 0.5, 1, 1]]
SCORES = [
    # cat, dog, fox, background
    [0.9, 0.1, 0.7, 0.99],
    [0.2, 0.6, 0.3, 0.01],
    [0.1, 0.8, 0.1, 0.5],
    [0.1, 0.2, 0.1, 0.5],
]
EXPECTED = [
    ("cat", 0.9, [32, 24, 96, 40]),
    ("dog", 0.8, [108.8, 25.6, 134.4, 38.4]),
    ("fox", 0.7, [32, 24, 96, 40]),
    ("dog", 0.6, [0, 0, 64, 32]),
]


def outputs(masks: Any = None) -> dict[str, Any]:
    logits = [[graphs.logit(score) for score in row] for row in SCORES]
    found = {"dets": np.array([BOXES], np.float32), "labels": np.array([logits], np.float32)}
    return found if masks is None else {**found, "masks": masks}


def write(folder: Path, shape: tuple[Any, ...] = ("batch", 3, 64, 64), **options: Any) -> Path:
    return graphs.constant(folder / "model.onnx", outputs(options.pop("masks", None)), shape=shape, **options)


@pytest.mark.parametrize(("batch", "half"), [("batch", False), (1, True), (2, False)])
def test_best_query_class_pairs_are_returned(tmp_path: Path, batch: int | str, half: bool) -> None:
    output_types = dict.fromkeys(("dets", "labels"), TensorProto.FLOAT16) if half else None
    model = detector(write(tmp_path, (batch, 3, 64, 64), output_types=output_types), labels=LABELS)
    # There are no more pairs than queries.
    for found in model([detection_input(WIDE), detection_input(WIDE, 0.0), detection_input(WIDE)]):
        assert_found(found, *EXPECTED, tolerance=0.1 if half else 1e-3)
        assert (found.scores.dtype, found.boxes.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize(("labels", "best"), [(None, "3"), (("cat", "dog", "fox", "owl"), "owl")])
def test_no_background_without_labels_or_with_label_for_each_output(tmp_path: Path, labels: Any, best: str) -> None:
    found = detect(write(tmp_path), WIDE, 0.95, labels=labels)
    assert (found.labels, found.scores.tolist()) == ([best], pytest.approx([0.99]))


def test_wrong_number_of_labels_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"4 classes, but model-settings\.json lists 2 labels; declare"):
        detector(write(tmp_path), labels=("a", "b"))


def test_class_names_are_read_from_rfdetr_metadata(tmp_path: Path) -> None:
    metadata = {"class_id_to_name": {"0": "cat", "2": "fox"}, "means": [0, 0, 0], "stds": [1, 1, 1], "task": "detect"}
    file = write(tmp_path, properties={"rfdetr_inference": json.dumps(metadata)})
    assert detect(file, WIDE).labels == ["cat", "fox"]
    facts = facts_of(file)
    assert facts["labels"] == Fact("labels", "2: cat, fox", Origin.MODEL_FILE)
    assert facts["mean"] == Fact("mean", "0, 0, 0", Origin.CONVENTION)


@pytest.mark.parametrize("text", ["{", "[]", '{"means": [1]}', '{"class_id_to_name": {"a": "b"}}', "[" * 100_000])
def test_invalid_metadata_is_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelError, match="'rfdetr_inference' cannot be read") as caught:
        inspected(graphs.source(write(tmp_path, properties={"rfdetr_inference": text})))
    assert len(str(caught.value).removeprefix(str(tmp_path))) < 300


def test_images_are_preprocessed_as_in_rf_detr(tmp_path: Path) -> None:
    facts = facts_of(write(tmp_path), labels=LABELS)
    expected = {
        "background": "class 3 of 4 in the output, left out", "resize": "stretch", "mean": "0.485, 0.456, 0.406",
        "std": "0.229, 0.224, 0.225",
    }  # fmt: skip
    assert [facts[topic] for topic in expected] == [Fact(*item, Origin.CONVENTION) for item in expected.items()]


def test_masks_belong_to_their_queries(tmp_path: Path) -> None:
    masks = np.full((1, 4, 16, 16), -5, np.float32)
    masks[0, 0, 4:8, 4:12] = 5
    masks[0, 1, :, 8:] = 5
    found = segment(write(tmp_path, masks=masks), WIDE, 0.65, labels=LABELS)
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
