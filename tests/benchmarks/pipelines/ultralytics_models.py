"""Ultralytics' models, compared with its documented letterbox, suppression and scaling."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from tests.benchmarks.pipelines import references as reference
from tests.benchmarks.pipelines.comparison import Answer, Family, Pixels
from tests.benchmarks.pipelines.references import (
    detections,
    greedy_suppression,
    named_scores,
    probabilistic_iou,
    segments,
    torchvision_crop,
)
from tests.benchmarks.pipelines.stand_ins import StandIn

_SIDE = 192
_MIN_SCORE = reference.MIN_SCORE
_PARAMETERS = {"score_threshold": _MIN_SCORE, "iou_threshold": reference.IOU_THRESHOLD}
_POINTS = 5


def ultralytics_families(folder: Path) -> Iterator[Family]:
    """Yield the trained fixture models, which have Ultralytics' metadata, and a pose model with random weights."""
    classifier = folder / "classify" / "model.onnx"
    classifier.parent.mkdir()
    # Without its settings, which select the fast filter.
    classifier.write_bytes((reference.MODELS / "classifier" / "model.onnx").read_bytes())
    every_class = {"score_threshold": 0.0}
    yield Family("Ultralytics classify", "steps of Ultralytics, Pillow", classifier, _Classes(classifier), every_class)
    pose = _pose(folder / "pose" / "model.onnx")
    models = {
        "detect": (reference.MODELS / "detector", _boxes),
        "obb": (reference.MODELS / "oriented-detector", _oriented_boxes),
        "segment": (reference.MODELS / "segmenter", _masks),
        "pose": (pose.parent, _poses),
    }
    for task, (path, steps) in models.items():
        expected = _Letterboxed(path / "model.onnx", steps)
        yield Family(f"Ultralytics {task}", "steps of Ultralytics, OpenCV", path, expected, _PARAMETERS)


class _Classes:
    """`Resize`, `CenterCrop` and `ToTensor`."""

    def __init__(self, file: Path) -> None:
        self._session = reference.load(file)
        self._names = ast.literal_eval(self._session.get_modelmeta().custom_metadata_map["names"])

    def __call__(self, pixels: Pixels) -> Answer:
        crop = torchvision_crop(pixels, 64, 64, Pillow.Resampling.BILINEAR)
        batch = crop.transpose(2, 0, 1)[np.newaxis].astype(np.float32) / 255
        return named_scores(reference.run(self._session, images=batch)[0][0], self._names)


class _Frame(msgspec.Struct, frozen=True, eq=False):
    """An image and its place in the square input: one scale for both axes, as `scale_boxes` uses."""

    pixels: Pixels
    scale: float
    left: int
    top: int

    def points(self, values: NDArray[Any]) -> NDArray[Any]:
        """Convert (n, 2 * k) coordinates of the input to pixels of the image."""
        return (values - np.tile([self.left, self.top], values.shape[1] // 2)) / self.scale


class _Letterboxed:
    """`LetterBox`, then the steps of one task."""

    def __init__(self, file: Path, steps: Any) -> None:
        self._session = reference.load(file)
        self._names = ast.literal_eval(self._session.get_modelmeta().custom_metadata_map["names"])
        self._side: int = self._session.get_inputs()[0].shape[2]
        self._steps = steps

    def __call__(self, pixels: Pixels) -> Answer:
        height, width = pixels.shape[:2]
        scale = min(self._side / height, self._side / width)
        new_width, new_height = round(width * scale), round(height * scale)
        resized = cv2.resize(pixels, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
        across, down = (self._side - new_width) / 2, (self._side - new_height) / 2
        top, bottom, left, right = (round(length + change) for length in (down, across) for change in (-0.1, 0.1))
        canvas = cv2.copyMakeBorder(resized, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(114,) * 3)
        batch = np.ascontiguousarray(canvas.transpose(2, 0, 1)[np.newaxis], np.float32) / 255
        outputs = [output[0] for output in reference.run(self._session, images=batch)]
        return self._steps(_Frame(pixels, scale, left, top), outputs, self._names)


def _candidates(output: NDArray[Any], names: dict[int, str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the rows over the threshold, their best scores and classes."""
    rows = output.T[output[4 : 4 + len(names)].max(axis=0) > _MIN_SCORE].astype(np.float64)
    scores = rows[:, 4 : 4 + len(names)]
    return rows, scores.max(axis=1, initial=0), scores.argmax(axis=1) if len(rows) else np.zeros(0, int)


def _suppressed(output: NDArray[Any], names: dict[int, str]) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    """Return the kept rows with boxes as xyxy, their scores and labels."""
    rows, scores, classes = _candidates(output, names)
    rows[:, :4] = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], axis=1)
    kept: list[int] = []
    for number in names:
        own = np.flatnonzero(classes == number)
        kept += own[greedy_suppression(rows[own, :4], scores[own], reference.IOU_THRESHOLD)].tolist()
    return rows[kept], scores[kept], [names[number] for number in classes[kept].tolist()]


def _boxes(frame: _Frame, outputs: list[NDArray[Any]], names: dict[int, str]) -> Answer:
    rows, scores, labels = _suppressed(outputs[0], names)
    return detections(labels, scores, frame.points(rows[:, :4]), frame.pixels)


def _poses(frame: _Frame, outputs: list[NDArray[Any]], names: dict[int, str]) -> Answer:
    rows, scores, labels = _suppressed(outputs[0], names)
    points = rows[:, 4 + len(names) :].reshape(len(rows), _POINTS, 3)
    places = frame.points(points[:, :, :2].reshape(len(rows), -1))
    all_scores = np.concatenate([scores[:, np.newaxis], points[:, :, 2]], axis=1)
    return detections(labels, all_scores, frame.points(rows[:, :4]), frame.pixels, places)


def _masks(frame: _Frame, outputs: list[NDArray[Any]], names: dict[int, str]) -> Answer:
    """Return the masks of `process_mask_native`, which enlarges the prototypes to the image."""
    rows, scores, labels = _suppressed(outputs[0], names)
    height, width = frame.pixels.shape[:2]
    boxes = np.clip(frame.points(rows[:, :4]), 0, [width, height, width, height])
    prototypes = outputs[1]
    gain = min(prototypes.shape[1] / height, prototypes.shape[2] / width)
    down, across = (prototypes.shape[1] - height * gain) / 2, (prototypes.shape[2] - width * gain) / 2
    part = prototypes[
        :,
        round(down - 0.1) : prototypes.shape[1] - round(down + 0.1),
        round(across - 0.1) : prototypes.shape[2] - round(across + 0.1),
    ]
    masks: list[NDArray[np.bool_]] = []
    for row, box in zip(rows, boxes, strict=True):
        logits = np.tensordot(row[4 + len(names) :].astype(np.float32), part, axes=1)
        large = cv2.resize(logits, (width, height), interpolation=cv2.INTER_LINEAR)
        x, y = np.arange(width), np.arange(height)[:, np.newaxis]
        masks.append((large > 0) & (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3]))
    return segments(labels, scores, masks)


def _oriented_boxes(frame: _Frame, outputs: list[NDArray[Any]], names: dict[int, str]) -> Answer:
    """Return oriented boxes without those that overlap a better one of their class, kept or not (`fast_nms`)."""
    rows, scores, classes = _candidates(outputs[0], names)
    corners = np.zeros((len(rows), 8))
    for index, (x, y, width, height, *_, angle) in enumerate(rows.tolist()):
        box = cv2.boxPoints(((x, y), (width, height), np.degrees(angle)))
        corners[index] = frame.points(box.reshape(1, -1))[0]
    order = np.argsort(-scores, kind="stable").tolist()
    kept = [
        index
        for rank, index in enumerate(order)
        if not any(
            classes[other] == classes[index] and probabilistic_iou(rows[other], rows[index]) >= reference.IOU_THRESHOLD
            for other in order[:rank]
        )
    ]
    labels = [names[number] for number in classes[kept].tolist()]
    return Answer(labels=labels, scores=scores[kept, np.newaxis], places=corners[kept], oriented=True)


def _pose(file: Path) -> Path:
    graph = StandIn(7)
    side = _SIDE // 16
    centres = np.stack(np.meshgrid(*[np.arange(side) * 16 + 8] * 2)).reshape(1, 2, -1)
    parts: list[str] = []
    for channels, kind in ((2, "centre"), (2, "size"), (2, "class")):
        features = graph.node("Reshape", graph.convolution("images", channels, (16, 16), 4, -1), _flat(graph, channels))
        values = graph.node("Sigmoid", features)
        if kind != "class":
            values = graph.node("Mul", values, graph.constant(16.0 if kind == "centre" else 60.0))
            values = graph.node("Add", values, graph.constant(centres - 8 if kind == "centre" else 10.0))
        parts.append(values)
    for _ in range(_POINTS):
        features = graph.node("Reshape", graph.convolution("images", 2, (16, 16), 20, 0), _flat(graph, 2))
        parts.append(graph.node("Add", features, graph.constant(centres)))
        visible = graph.node("Reshape", graph.convolution("images", 1, (16, 16), 4, 0), _flat(graph, 1))
        parts.append(graph.node("Sigmoid", visible))
    graph.node("Concat", *parts, axis=1, output="output0")
    names, size = "{0: 'cat', 1: 'dog'}", str([_SIDE, _SIDE])
    properties = {"task": "pose", "names": names, "imgsz": size, "kpt_shape": str([_POINTS, 3])}
    shape = ["b", 6 + 3 * _POINTS, side * side]
    return graph.write(file, {"output0": shape}, ("b", 3, _SIDE, _SIDE), properties=properties)


def _flat(graph: StandIn, channels: int) -> str:
    return graph.constant([0, channels, -1], np.int64)
