"""PaddleOCR's text detection and recognition, compared with the steps of its own inference."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import shapely
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from tests.benchmarks.pipelines import references as reference
from tests.benchmarks.pipelines.comparison import Answer, Family, Pixels
from tests.benchmarks.pipelines.stand_ins import StandIn

_MIN_SCORE = 0.5
_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def paddle_families(folder: Path) -> Iterator[Family]:
    """Yield text detection and recognition with few weights."""
    detector = _detector(folder / "text-detection" / "model.onnx")
    detected = partial(_detected_text, reference.load(detector))
    yield Family("PaddleOCR detection", "steps of PaddleOCR", detector, detected, {"score_threshold": _MIN_SCORE})
    recogniser = _recogniser(folder / "text-recognition" / "model.onnx")
    recognised = partial(_recognised_text, reference.load(recogniser))
    yield Family("PaddleOCR recognition", "steps of PaddleOCR", recogniser, recognised, {})


def _detector(file: Path) -> Path:
    """Write a graph that finds blobs that are brighter than their surroundings."""
    graph = StandIn(3)
    grey = graph.node("ReduceMean", "x", axes=[1], keepdims=1)
    near = graph.node("AveragePool", grey, kernel_shape=[19, 19], pads=[9] * 4)
    wide = graph.node("AveragePool", grey, kernel_shape=[1, 81], pads=[0, 40, 0, 40])
    far = graph.node("AveragePool", wide, kernel_shape=[81, 1], pads=[40, 0, 40, 0])
    contrast = graph.node("Mul", graph.node("Sub", near, far), graph.constant(10.0))
    graph.node("Sigmoid", graph.node("Sub", contrast, graph.constant(3.0)), output="sigmoid_0.tmp_0")
    return graph.write(file, {"sigmoid_0.tmp_0": ["b", 1, "h", "w"]}, ("b", 3, "h", "w"), name="x")


def _detected_text(session: InferenceSession, pixels: Pixels) -> Answer:
    """Take the steps of `DetResizeForTest`, `NormalizeImage`, `DBPostProcess` and `filter_tag_det_res`, by default."""
    height, width = pixels.shape[:2]
    ratio = max(1.0, 736 / min(height, width))
    sides = [max(round(int(side * ratio) / 32) * 32, 32) for side in (height, width)]
    resized = cv2.resize(pixels[:, :, ::-1], sides[::-1]).astype(np.float32)
    normal = (resized / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    (maps,) = reference.run(session, x=normal.transpose(2, 0, 1)[np.newaxis].astype(np.float32))
    cells = maps[0, 0]
    contours, _ = cv2.findContours((cells > 0.3).astype(np.uint8) * 255, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    corners: list[NDArray[Any]] = []
    scores: list[float] = []
    for contour in contours[:1000]:
        points, shorter = _smallest_rectangle(contour)
        if shorter < 3:
            continue
        score = _mean_score(cells, points)
        if score < _MIN_SCORE:
            continue
        points, shorter = _smallest_rectangle(_unclipped(points, 1.5))
        if shorter < 5:
            continue
        points = np.round(points / sides[::-1] * [width, height])
        inside = np.clip(points, 0, [width - 1, height - 1])
        if min(int(np.linalg.norm(inside[0] - inside[1])), int(np.linalg.norm(inside[0] - inside[3]))) > 3:
            # Oriented boxes cannot be clipped: a part of one has no right angles.
            corners.append(points.ravel())
            scores.append(score)
    count = len(scores)
    return Answer(
        labels=["text"] * count,
        scores=np.array(scores).reshape(count, 1 if count else 0),
        places=np.array(corners, np.float64).reshape(count, 8 if count else 0),
        oriented=True,
    )


def _smallest_rectangle(points: NDArray[Any]) -> tuple[NDArray[Any], float]:
    rectangle = cv2.minAreaRect(points)
    return np.asarray(cv2.boxPoints(rectangle)), min(rectangle[1])


def _unclipped(points: NDArray[Any], ratio: float) -> NDArray[Any]:
    """Grow a rectangle with round corners; pyclipper, which PaddleOCR calls, computes with whole numbers."""
    polygon = shapely.Polygon(points)
    distance = polygon.area * ratio / polygon.length
    grown = shapely.Polygon(np.trunc(points)).buffer(distance, quad_segs=32)
    return np.rint(shapely.get_coordinates(grown)).astype(np.int32)


def _mean_score(cells: NDArray[Any], points: NDArray[Any]) -> float:
    """Return `box_score_fast`."""
    limits = np.array(cells.shape[::-1]) - 1
    low = np.clip(np.floor(points.min(axis=0)), 0, limits).astype(int)
    high = np.clip(np.ceil(points.max(axis=0)), 0, limits).astype(int)
    mask = np.zeros((high - low + 1)[::-1], np.uint8)
    cv2.fillPoly(mask, [(points - low).astype(np.int32)], 1)
    return float(cv2.mean(cells[low[1] : high[1] + 1, low[0] : high[0] + 1], mask)[0])


def _recogniser(file: Path) -> Path:
    graph = StandIn(4)
    features = graph.convolution("x", len(_CHARACTERS) + 2, (48, 8), 3.0)
    rows = graph.node("Transpose", graph.node("Squeeze", features, graph.constant([2], np.int64)), perm=[0, 2, 1])
    graph.node("Softmax", rows, output="softmax_0.tmp_0", axis=2)
    properties = {"character": "\n".join(_CHARACTERS)}
    shape = ("b", 3, 48, "w")
    return graph.write(
        file, {"softmax_0.tmp_0": ["b", "t", len(_CHARACTERS) + 2]}, shape, name="x", properties=properties
    )


def _recognised_text(session: InferenceSession, pixels: Pixels) -> Answer:
    """Take the steps of `resize_norm_img` and `CTCLabelDecode`."""
    height, width = pixels.shape[:2]
    input_width = int(48 * max(320 / 48, width / height))
    new_width = min(math.ceil(48 * width / height), input_width)
    resized = cv2.resize(pixels[:, :, ::-1], (new_width, 48)).astype(np.float32).transpose(2, 0, 1)
    padded = np.zeros((1, 3, 48, input_width), np.float32)
    padded[0, :, :, :new_width] = (resized / 255 - 0.5) / 0.5
    (steps,) = reference.run(session, x=padded)
    numbers = steps[0].argmax(axis=1)
    changed = np.concatenate([[True], numbers[1:] != numbers[:-1]])
    alphabet = ["", *_CHARACTERS, " "]
    text = "".join(alphabet[number] for number in numbers[changed & (numbers != 0)])
    return Answer(text=text)
