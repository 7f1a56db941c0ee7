"""Compare face detectors with OpenCV and the anchors of MediaPipe."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.server import DEMO_IMAGES, DEMO_MODELS
from app.public_api.in_process import InProcessModel
from metadata.model import Fact, Origin
from tasks.object_detection import PosedObject
from tasks.vision.image import Image
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    all_close,
    assert_found,
    detect,
    inspected,
    uniform_image,
)
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input, predict

SIDE = 64
STRIDES = (8, 16, 32)


def yunet(folder: Path) -> Path:
    """Write a graph with the outputs of YuNet for 64x64 pixels; a few candidates have high scores."""
    random = np.random.default_rng(4)
    outputs: dict[str, NDArray[np.float32]] = {}
    for kind, width in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)):
        for stride in STRIDES:
            count = (SIDE // stride) ** 2
            values = random.uniform(0, 1, (1, count, width)) ** (6 if width == 1 else 1)
            outputs[f"{kind}_{stride}"] = (values * 1.4 - 0.2).astype(np.float32)
    return graphs.constant(folder / "model.onnx", outputs, shape=(1, 3, SIDE, SIDE), name="input")


def sorted_rows(boxes: NDArray[Any], scores: NDArray[Any]) -> NDArray[Any]:
    rows = np.concatenate([scores[:, np.newaxis], boxes], axis=1)
    return rows[np.argsort(-rows[:, 0], kind="stable")]


@pytest.mark.verifies("OpenCV's `FaceDetectorYN`, on random outputs", "yunet")
def test_yunet_gives_boxes_of_opencv(tmp_path: Path) -> None:
    file = yunet(tmp_path)
    reference = cv2.FaceDetectorYN.create(str(file), "", (SIDE, SIDE), 0.3, 0.45)
    _, faces = reference.detect(np.zeros((SIDE, SIDE, 3), np.uint8))
    found = detect(file, uniform_image(SIDE, SIDE, 0), 0.3)
    expected = np.concatenate([faces[:, :2], faces[:, :2] + faces[:, 2:4]], axis=1)
    assert len(faces) > 2
    assert found.labels == ["face"] * len(faces)
    assert found.keypoints is not None
    places = np.concatenate([found.boxes, found.keypoints.reshape(len(faces), 10)], axis=1)
    expected = np.concatenate([expected, faces[:, 4:14]], axis=1)
    np.testing.assert_allclose(sorted_rows(places, found.scores), sorted_rows(expected, faces[:, 14]), atol=1e-3)


def test_yunet_input_is_bgr_padded_with_black(tmp_path: Path) -> None:
    found = inspected(graphs.source(yunet(tmp_path)))
    pixels = np.random.default_rng(1).integers(0, 256, (32, SIDE, 3), np.uint8)
    batch, _ = found.graph.batcher.prepare([Image(pixels)], 1)
    assert (batch[0, :, :32] == pixels[:, :, ::-1].transpose(2, 0, 1)).all()
    assert not batch[0, :, 32:].any()


SHAPES = [(128, 896, 16, "face"), (256, 896, 16, "face"), (192, 2304, 16, "face"), (192, 2016, 18, "palm")]


def rows(count: int, width: int, found: dict[int, tuple[float, list[float]]]) -> dict[str, NDArray[np.float32]]:
    """Return the two outputs, with a probability and a row for some anchors."""
    regressors = np.zeros((1, count, width), np.float32)
    logits = np.full((1, count, 1), -20, np.float32)
    for index, (score, row) in found.items():
        regressors[0, index, : len(row)] = row
        logits[0, index] = graphs.logit(score)
    return {"regressors": regressors, "classificators": logits}


def write(folder: Path, outputs: dict[str, Any], side: int = 128) -> Path:
    return graphs.constant(folder / "model.onnx", outputs, shape=(1, side, side, 3), name="input")


@pytest.mark.verifies("graphs with known answers", "mediapipe")
def test_rows_are_relative_to_the_centres_of_their_cells(tmp_path: Path) -> None:
    # Two anchors in each of 16 x 16 cells of 8 pixels, then six in each of 8 x 8 cells of 16 pixels.
    outputs = rows(896, 16, {35: (0.9, [2, -2, 10, 20, 1, 1]), 512 + 8 * 6 * 7 + 5: (0.8, [0, 0, 8, 8])})
    found = detect(write(tmp_path, outputs), uniform_image(128, 128, 0))
    # Anchor 35 is the second one of cell 1 in row 1: its centre is 12, 12.
    assert_found(found, ("face", 0.9, [9, 0, 19, 20]), ("face", 0.8, [4, 116, 12, 124]))
    assert found.keypoints is not None
    assert found.keypoints.shape == (2, 6, 2)
    assert all_close(found.keypoints[0, :2], [[13, 13], [12, 12]])
    record = found.records()[0]
    assert isinstance(record, PosedObject)
    assert record.keypoints[:2] == [[13.0, 13.0], [12.0, 12.0]]


def test_overlapping_boxes_are_averaged_by_their_scores(tmp_path: Path) -> None:
    outputs = rows(896, 16, {34: (0.9, [0, 0, 20, 20, 6]), 35: (0.6, [2, 0, 20, 20, 0]), 300: (0.7, [0, 0, 8, 8])})
    found = detect(write(tmp_path, outputs), uniform_image(128, 128, 0))
    assert_found(found, ("face", 0.9, [2.8, 2, 22.8, 22]), ("face", 0.7, [48, 72, 56, 80]))
    assert found.keypoints is not None
    assert all_close(found.keypoints[:1, 0], [[12 + 3.6, 12]])


def test_demo_finds_the_face_and_its_points_in_a_photograph() -> None:
    model: Any = InProcessModel(DEMO_MODELS / "face-detector")
    (face,) = model.ask((DEMO_IMAGES / "portrait.jpg").read_bytes())
    assert (face.label, round(face.score, 2)) == ("face", 0.92)
    # The right eye, the left eye, the nose and the mouth, as they are marked by hand.
    assert all_close(face.keypoints[:4], [[203, 101], [247, 107], [223, 125], [219, 146]], 3)


@pytest.mark.parametrize(("parameters", "objects"), [({}, 1), ({"iou_threshold": 0.45}, 2)])
def test_boxes_are_averaged_from_mediapipe_s_overlap(tmp_path: Path, parameters: dict[str, Any], objects: int) -> None:
    # Two boxes of 20 pixels, 8 apart, have an IoU of 12 / 28.
    outputs = rows(896, 16, {34: (0.9, [0, 0, 20, 20]), 35: (0.6, [8, 0, 20, 20])})
    file = write(tmp_path, outputs)
    image = file_input(encode_image(rectangle(128, 128)), **parameters)
    (prediction,) = predict(load(graphs.source(file)), image)
    assert len(prediction.records()) == objects
    # The settings precede the layout.
    servable = load(graphs.source(file, parameters={"iou_threshold": 0.4, "score_threshold": 0.7}))
    assert servable.defaults == {"iou_threshold": 0.4, "score_threshold": 0.7}
    assert Fact("iou_threshold", "0.4", Origin.DECLARED) in servable.description.facts


@pytest.mark.parametrize(("side", "count", "width", "label"), SHAPES)
def test_published_shapes_need_no_settings(tmp_path: Path, side: int, count: int, width: int, label: str) -> None:
    found = inspected(graphs.source(write(tmp_path, rows(count, width, {}), side)))
    facts = {fact.topic: fact for fact in found.description.facts}
    assert (found.description.layout, found.description.labels) == ("mediapipe", (label,))
    assert facts["mean"].value == ("0, 0, 0" if label == "palm" else "0.5, 0.5, 0.5")
    assert (facts["antialiasing"].value, facts["iou_threshold"].value) == ("yes, as Pillow", "0.3")
    assert not [fact for fact in found.description.facts if fact.origin is Origin.GUESSED]
