"""Steps that several references share, written without the server's code."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image as Pillow

from tests.benchmarks.pipelines.comparison import Answer, Pixels
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
MIN_SCORE = 0.05
IOU_THRESHOLD = 0.5


def load(path: Path) -> onnxruntime.InferenceSession:
    """Open a model on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, **inputs: NDArray[np.generic]) -> list[NDArray[np.float32]]:
    """Compute all outputs of a graph."""
    return [np.asarray(output) for output in session.run(None, inputs)]


def named_scores(scores: NDArray[Any], names: Any) -> Answer:
    """Return the (n,) scores of classes."""
    labels = [str(names[number]) for number in range(len(scores))]
    return Answer(
        labels=labels, scores=np.asarray(scores, np.float64)[:, np.newaxis], places=np.zeros((len(labels), 0))
    )


def detections(
    labels: Sequence[str], scores: NDArray[Any], boxes: NDArray[Any], pixels: Pixels, points: NDArray[Any] | None = None
) -> Answer:
    """Return the boxes, (n, 4) xyxy in pixels, that are not empty after they are clipped to the image.

    `scores` are (n,) or (n, s), and `points` (n, 2 * k) further coordinates, which are not clipped.
    """
    height, width = pixels.shape[:2]
    clipped = np.clip(np.asarray(boxes, np.float64), 0, [width, height, width, height])
    inside = np.flatnonzero((clipped[:, 2:] > clipped[:, :2]).all(axis=1))
    places = clipped if points is None else np.concatenate([clipped, points], axis=1)
    columns = np.asarray(scores, np.float64).reshape(len(clipped), -1)
    return Answer(labels=[labels[index] for index in inside], scores=columns[inside], places=places[inside])


def segments(labels: Sequence[str], scores: NDArray[Any], masks: Sequence[NDArray[np.bool_]]) -> Answer:
    """Return the objects with (n,) scores whose masks are not empty."""
    filled = [index for index, mask in enumerate(masks) if mask.any()]
    return Answer(
        labels=[labels[index] for index in filled],
        scores=scores[filled, np.newaxis],
        places=np.zeros((len(filled), 0)),
        masks=[masks[index] for index in filled],
    )


def greedy_suppression(boxes: NDArray[Any], scores: NDArray[Any], iou_threshold: float) -> list[int]:
    """Return the indices of the (n, 4) xyxy boxes of one class that are kept, by descending score."""
    left = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(int(best))
        sides = np.minimum(boxes[best, 2:], boxes[left, 2:]) - np.maximum(boxes[best, :2], boxes[left, :2])
        shared = np.clip(sides, 0, None).prod(axis=1)
        areas = (boxes[left, 2:] - boxes[left, :2]).prod(axis=1) + (boxes[best, 2:] - boxes[best, :2]).prod() - shared
        left = left[shared <= iou_threshold * areas]
    return kept


def probabilistic_iou(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return 1 minus the Hellinger distance of two oriented boxes as Gaussians (`batch_probiou` of Ultralytics).

    Rows begin with x and y of the centre, width and height, and end with the angle.
    """
    covariances: list[NDArray[np.float64]] = []
    for _, _, width, height, *_, angle in (first.tolist(), second.tolist()):
        axes = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        covariances.append(axes @ np.diag([width**2, height**2]) @ axes.T / 12)
    mean, difference = (covariances[0] + covariances[1]) / 2, (first[:2] - second[:2]).astype(np.float64)
    determinant = np.sqrt(np.linalg.det(covariances[0]) * np.linalg.det(covariances[1]))
    distance = difference @ np.linalg.inv(mean) @ difference / 8 + np.log(np.linalg.det(mean) / determinant) / 2
    return 1 - float(np.sqrt(max(1 - np.exp(-distance), 0)))


def sigmoid(values: NDArray[Any]) -> NDArray[Any]:
    """Convert logits to probabilities."""
    return 1 / (1 + np.exp(-values))


def torchvision_crop(pixels: Pixels, side: int, crop: int, resample: int) -> Pixels:
    """Return `Resize(side)` and `CenterCrop(crop)` of torchvision."""
    height, width = pixels.shape[:2]
    other = int(side * max(height, width) / min(height, width))
    size = (side, other) if width <= height else (other, side)
    left, top = (round((length - crop) / 2.0) for length in size)
    return np.asarray(Pillow.fromarray(pixels).resize(size, resample).crop((left, top, left + crop, top + crop)))
