"""Compare face detectors with OpenCV's FaceDetectorYN and with the steps of InsightFace."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from metadata.model import Origin
from tasks.vision.image import Image
from tests.benchmarks.pipelines.faces import insightface_rows
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import detect, detection_input, detector, inspected, uniform_image

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


def scrfd_outputs(anchors: int, *, landmarks: bool) -> list[NDArray[np.float32]]:
    random = np.random.default_rng(6)
    counts = [(SIDE // stride) ** 2 * anchors for stride in STRIDES]
    scores = [random.uniform(0, 1, (count, 1)) ** 8 for count in counts]
    boxes = [random.uniform(0.2, 2, (count, 4)) for count in counts]
    points = [random.uniform(-1, 1, (count, 10)) for count in counts] if landmarks else []
    return [array.astype(np.float32) for array in (*scores, *boxes, *points)]


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("landmarks", [True, False])
def test_scrfd_gives_boxes_of_insightface(tmp_path: Path, batched: bool, landmarks: bool) -> None:
    outputs = scrfd_outputs(2, landmarks=landmarks)
    named = {str(448 + number): array[np.newaxis] if batched else array for number, array in enumerate(outputs)}
    file = graphs.write(
        tmp_path / "model.onnx",
        [graphs.helper.make_node("Identity", [f"{name}.value"], [name]) for name in named],
        {name: array.shape for name, array in named.items()},
        constants={f"{name}.value": array for name, array in named.items()},
        shape=(1, 3, SIDE, SIDE),
        name="input.1",
    )
    image = detection_input(uniform_image(SIDE, SIDE, 0), 0.3)
    expected = insightface_rows(outputs, SIDE, 0.3, 0.45)
    assert len(expected) > 3
    for found in detector(file)([image, image]):
        assert found.labels == ["face"] * len(expected)
        points = [] if found.keypoints is None else [found.keypoints.reshape(len(expected), 10)]
        places = np.concatenate([found.boxes, *points], axis=1)
        np.testing.assert_allclose(sorted_rows(places, found.scores), expected, atol=1e-3)


def test_scrfd_input_equals_insightface(tmp_path: Path) -> None:
    outputs = {str(number): array[np.newaxis] for number, array in enumerate(scrfd_outputs(2, landmarks=True))}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, SIDE, SIDE))
    found = inspected(graphs.source(file))
    assert not [fact for fact in found.description.facts if fact.origin is Origin.GUESSED]
    pixels = np.random.default_rng(1).integers(0, 256, (50, 91, 3), np.uint8)
    height = int(SIDE * (50 / 91))
    padded = np.zeros((SIDE, SIDE, 3), np.uint8)
    padded[:height] = cv2.resize(pixels[:, :, ::-1], (SIDE, height))
    expected = cv2.dnn.blobFromImage(padded, 1 / 128, (SIDE, SIDE), (127.5, 127.5, 127.5), swapRB=True)
    batch, _ = found.graph.batcher.prepare([Image(pixels)], 1)
    np.testing.assert_allclose(batch, expected, atol=1e-5)


def test_yunet_input_is_bgr_padded_with_black(tmp_path: Path) -> None:
    found = inspected(graphs.source(yunet(tmp_path)))
    pixels = np.random.default_rng(1).integers(0, 256, (32, SIDE, 3), np.uint8)
    batch, _ = found.graph.batcher.prepare([Image(pixels)], 1)
    assert (batch[0, :, :32] == pixels[:, :, ::-1].transpose(2, 0, 1)).all()
    assert not batch[0, :, 32:].any()
