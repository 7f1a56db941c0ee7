"""Face detectors, compared with OpenCV's FaceDetectorYN and with the steps of InsightFace."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from tests.benchmarks.pipelines import references as reference
from tests.benchmarks.pipelines.comparison import Answer, Family, Pixels
from tests.benchmarks.pipelines.references import detections, greedy_suppression
from tests.benchmarks.pipelines.stand_ins import StandIn

_SIDE = 192
_STRIDES = (8, 16, 32)
_MIN_SCORE = 0.4
_PARAMETERS = {"score_threshold": _MIN_SCORE, "iou_threshold": 0.3}


def face_families(folder: Path) -> Iterator[Family]:
    """Yield YuNet and SCRFD with random weights."""
    yunet, scrfd = _yunet(folder / "yunet" / "model.onnx"), _scrfd(folder / "scrfd" / "model.onnx")
    detector = cv2.FaceDetectorYN.create(str(yunet), "", (_SIDE, _SIDE), _MIN_SCORE, 0.3)
    by_opencv = partial(_detected_by_opencv, detector)
    yield Family("YuNet faces", "OpenCV's FaceDetectorYN", yunet, by_opencv, _PARAMETERS)
    by_insightface = partial(_detected_by_insightface, reference.load(scrfd))
    yield Family("SCRFD faces", "steps of InsightFace", scrfd, by_insightface, _PARAMETERS)


def _yunet(file: Path) -> Path:
    graph = StandIn(1)
    outputs: dict[str, list[int | str]] = {}
    kinds = (("cls", 1, 0.02, 1), ("obj", 1, 0.02, -2), ("bbox", 4, 0.01, 0), ("kps", 10, 0.01, 0))
    for kind, width, gain, bias in kinds:
        for stride in _STRIDES:
            features = graph.convolution("input", width, (stride, stride), gain, bias)
            name = f"{kind}_{stride}"
            if width == 1:
                graph.node("Sigmoid", graph.rows(features, width), output=name)
            else:
                graph.rows(features, width, name)
            outputs[name] = [1, (_SIDE // stride) ** 2, width]
    return graph.write(file, outputs, (1, 3, _SIDE, _SIDE), name="input")


def _detected_by_opencv(detector: cv2.FaceDetectorYN, pixels: Pixels) -> Answer:
    """Fit the image into the input, as its example does, and run `cv2.FaceDetectorYN`."""
    canvas, scale = _fitted(pixels)
    _, faces = detector.detect(canvas)
    rows = np.zeros((0, 15)) if faces is None else np.asarray(faces, np.float64)
    boxes = np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:4]], axis=1) / np.tile(scale, 2)
    return detections(["face"] * len(rows), rows[:, 14], boxes, pixels, rows[:, 4:14] / np.tile(scale, 5))


def _fitted(pixels: Pixels) -> tuple[Pixels, NDArray[np.float64]]:
    """Return BGR pixels in the left top corner of the input as InsightFace does, and the scales of x and y."""
    height, width = pixels.shape[:2]
    new_height = _SIDE if height > width else int(_SIDE * (height / width))
    new_width = int(new_height / (height / width)) if height > width else _SIDE
    canvas = np.zeros((_SIDE, _SIDE, 3), np.uint8)
    canvas[:new_height, :new_width] = cv2.resize(pixels[:, :, ::-1], (new_width, new_height))
    return canvas, np.array([new_width / width, new_height / height])


def _scrfd(file: Path) -> Path:
    graph = StandIn(2)
    outputs: dict[str, list[int | str]] = {}
    for kind, width, gain, bias in (("score", 1, 2.0, -1), ("bbox", 4, 1, 2), ("kps", 10, 1, 0)):
        for stride in _STRIDES:
            features = graph.convolution("input.1", 2 * width, (stride, stride), gain, bias)
            name = f"{kind}_{stride}"
            rows = graph.rows(features, width, "" if kind == "score" else name)
            if kind == "score":
                graph.node("Sigmoid", rows, output=name)
            outputs[name] = ["batch", 2 * (_SIDE // stride) ** 2, width]
    return graph.write(file, outputs, ("batch", 3, _SIDE, _SIDE), name="input.1")


def _detected_by_insightface(session: InferenceSession, pixels: Pixels) -> Answer:
    """Take the steps of `SCRFD.detect`."""
    canvas, (_, scale) = _fitted(pixels)
    blob = cv2.dnn.blobFromImage(canvas, 1.0 / 128, (_SIDE, _SIDE), (127.5, 127.5, 127.5), swapRB=True)
    outputs = [output[0] for output in reference.run(session, **{"input.1": np.asarray(blob)})]
    rows = insightface_rows(outputs, _SIDE, _MIN_SCORE, 0.3)
    return detections(["face"] * len(rows), rows[:, 0], rows[:, 1:5] / scale, pixels, rows[:, 5:] / scale)


def insightface_rows(
    outputs: Sequence[NDArray[Any]], side: int, min_score: float, max_overlap: float
) -> NDArray[np.float64]:
    """Return the score, box and landmarks of each face, from the scores, distances and offsets for each stride.

    Boxes and landmarks are in pixels of the square input; the outputs may have no landmarks.
    """
    rows: list[NDArray[np.float64]] = []
    for level, stride in enumerate(_STRIDES):
        scores, distances = outputs[level], outputs[level + 3] * stride
        centres = np.stack(np.mgrid[: side // stride, : side // stride][::-1], axis=-1).reshape(-1, 2) * stride
        centres = centres.repeat(len(scores) // len(centres), axis=0)
        parts = [scores, centres - distances[:, :2], centres + distances[:, 2:]]
        if len(outputs) > 6:
            parts.append(outputs[level + 6] * stride + np.tile(centres, 5))
        rows.append(np.concatenate(parts, axis=1, dtype=np.float64)[scores[:, 0] >= min_score])
    found = np.concatenate(rows)
    return found[greedy_suppression(found[:, 1:5], found[:, 0], max_overlap)]
