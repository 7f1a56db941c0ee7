"""Decode detectors of faces, palms and persons with candidates for the cells of grids. Landmarks become keypoints.

- ``yunet``: ``cls_8``, ``obj_8``, ``bbox_8`` and ``kps_8``, and the same for 16 and 32, as in OpenCV's zoo. A score is
  the root of class times objectness; a box is an offset in cells and the logarithms of its sides; a landmark is an
  offset in cells (``FaceDetectorYN`` of OpenCV). Images are BGR in 0..255.
- ``mediapipe``: MediaPipe's detectors of faces (BlazeFace), palms and persons: ``regressors`` [b, N, 4 + 2 * K] and
  ``classificators`` [b, N, 1], as tf2onnx names BlazeFace's. A row is cx, cy, w, h and K points in input pixels,
  where cx, cy and the points are relative to the centre of a cell. Scores are logits. Cells follow each other by row,
  with several anchors each, from the finest grid to the coarsest. Overlapping boxes of one object are averaged by their
  scores (`NonMaxSuppressionCalculator`, WEIGHTED).
"""

import math
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.images.preprocessing import HALVES, ONES, ZEROS, PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.candidates import Candidates, best_indices
from app.core.runtimes.onnxruntime.layouts.layout import GraphView, Layout, Match, sigmoid
from app.plugins.layouts.objectness import grid_corners
from metadata.model import Origin
from tasks.inference.error import model_failed
from tasks.object_detection import DetectionInput
from tasks.task import TaskType
from tasks.vision.filtering import ious, xywh_to_xyxy

_YUNET_STRIDES = (8, 16, 32)
_MAX_CANDIDATES = 5000
_MAX_EXPONENT = 20.0
_POINTS = (5, 2)
"""Landmarks of a face, and coordinates of each: the eyes, the tip of the nose and the corners of the mouth."""
_YUNET_DEFAULTS = PartialPreprocessing(
    size=(640, 640), resize="pad", interpolation="bilinear", antialias=False, fill=0, scale=1.0, channel_order="BGR"
)


def _recognise_yunet(view: GraphView) -> Match | None:
    names = [f"{kind}_{stride}" for kind in ("cls", "obj", "bbox") for stride in _YUNET_STRIDES]
    outputs = view.outputs_named(*names)
    if outputs is None or not all(output.is_float and output.blank.ndim == 3 for output in outputs):
        return None
    scores, objectness, boxes = outputs[:3], outputs[3:6], outputs[6:]
    for score, presence, box in zip(scores, objectness, boxes, strict=True):
        if not score.shape == presence.shape == (*box.shape[:2], 1) or box.shape[2] != 4:
            return None
    points = view.outputs_named(*(f"kps_{stride}" for stride in _YUNET_STRIDES)) or []
    if [point.shape for point in points] != [(*box.shape[:2], math.prod(_POINTS)) for box in boxes]:
        points = []
    return Match(
        layout="yunet",
        task_type=TaskType.OBJECT_DETECTION,
        outputs=[*outputs, *points],
        decode=_find_yunet,
        keypoints=_POINTS if points else None,
        by_names=True,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        classes=1,
        names=("face",),
        preprocessing=_YUNET_DEFAULTS,
    )


def _find_yunet(answer: RawOutputs, item: DetectionInput) -> Candidates:
    parts: list[NDArray[np.float32]] = []
    for level, stride in enumerate(_YUNET_STRIDES):
        scores, presence, boxes, *points = answer.outputs[level :: len(_YUNET_STRIDES)]
        corners = _corners(len(boxes), stride, answer)
        centres = corners + boxes[:, :2] * stride
        sides = np.exp(np.minimum(boxes[:, 2:], _MAX_EXPONENT)) * stride
        score = np.sqrt(np.clip(scores, 0, 1) * np.clip(presence, 0, 1))
        landmarks = [offsets * np.float32(stride) + np.tile(corners, _POINTS[0]) for offsets in points]
        parts.append(np.concatenate([score, centres, sides, *landmarks], axis=1, dtype=np.float32))
    rows = np.concatenate(parts)
    rows = rows[best_indices(rows[:, 0], item.floor, _MAX_CANDIDATES)]
    boxes, numbers = xywh_to_xyxy(rows[:, 1:5]), np.zeros(len(rows), np.intp)
    found = Candidates(boxes=boxes, scores=rows[:, 0], class_ids=numbers, extras=rows[:, 5:])
    return found.finite().suppress(item.parameters)


def _corners(count: int, stride: int, answer: RawOutputs) -> NDArray[np.float32]:
    """Return the (count, 2) left top corners of the cells, pixels."""
    rows, columns = answer.height // stride, answer.width // stride
    if count != rows * columns:
        message = f"The model returned {count} candidates for stride {stride} and {answer.height}x{answer.width} pixels"
        raise model_failed(message)
    return grid_corners(rows, columns, stride)


_GRIDS = {
    (128, 896): ((8, 2), (16, 6)),
    (256, 896): ((16, 2), (32, 6)),
    (192, 2304): ((4, 1),),
    (192, 2016): ((8, 2), (16, 6)),
    (224, 2254): ((8, 2), (16, 2), (32, 6)),
}
"""Stride in pixels and anchors of each cell, by the side of the input and the number of rows."""
_ANCHOR_DEFAULTS = PartialPreprocessing(
    resize="letterbox", interpolation="bilinear", antialias=True, fill=0, scale=1 / 255, channel_order="RGB"
)
_OBJECTS = {16: "face", 18: "palm", 12: "person"}
"""Labels by the width of a row."""
_BOX = 4
_MAX_ANCHORS = 1000


def _recognise_anchors(view: GraphView) -> Match | None:
    if len(view.outputs) != 2 or not all(output.is_float and output.blank.ndim == 3 for output in view.outputs):
        return None
    scores, rows = sorted(view.outputs, key=lambda output: output.shape[2])
    height, width = view.inputs.sides
    _, count, numbers = rows.shape
    grids, label = _GRIDS.get((height, count)), _OBJECTS.get(numbers)
    if scores.shape != (*rows.shape[:2], 1) or height != width or grids is None or label is None:
        return None
    # Palms are detected in pixels of 0..1, all others in pixels of -1..1.
    mean, std = (ZEROS, ONES) if label == "palm" else (HALVES, HALVES)
    return Match(
        layout="mediapipe",
        task_type=TaskType.OBJECT_DETECTION,
        outputs=(rows, scores),
        decode=partial(_find_anchors, centres=_centres(height, grids)),
        keypoints=((numbers - _BOX) // 2, 2),
        by_names=True,
        classes=1,
        names=(label,),
        preprocessing=msgspec.structs.replace(_ANCHOR_DEFAULTS, mean=mean, std=std),
        # ``min_suppression_threshold`` of MediaPipe's graphs, which average the overlapping boxes.
        parameters={"iou_threshold": 0.3},
    )


def _centres(side: int, grids: tuple[tuple[int, int], ...]) -> NDArray[np.float32]:
    """Return the (N, 2) centres of the cells of all anchors, pixels."""
    parts = [
        np.repeat(grid_corners(side // stride, side // stride, stride) + stride / 2, anchors, axis=0)
        for stride, anchors in grids
    ]
    return np.concatenate(parts, dtype=np.float32)


def _find_anchors(answer: RawOutputs, item: DetectionInput, *, centres: NDArray[np.float32]) -> Candidates:
    rows, logits = answer.outputs
    scores = sigmoid(logits[:, 0])
    chosen = best_indices(scores, item.floor, _MAX_ANCHORS)
    picked: NDArray[np.float32] = rows[chosen].astype(np.float32)
    points = (rows.shape[1] - _BOX) // 2
    picked[:, :2] += centres[chosen]
    picked[:, _BOX:] += np.tile(centres[chosen], points)
    candidates = Candidates(
        boxes=xywh_to_xyxy(picked[:, :_BOX]),
        scores=scores[chosen],
        class_ids=np.zeros(len(chosen), np.intp),
        extras=picked[:, _BOX:],
    ).finite()
    return _averaged(candidates, item.parameters.iou_threshold)


def _averaged(candidates: Candidates, iou_threshold: float) -> Candidates:
    """Replace each group of overlapping boxes by their mean, weighted by their scores, with the highest score."""
    left = (-candidates.scores).argsort(kind="stable")
    places = np.concatenate([candidates.boxes, candidates.extras], axis=1)
    best: list[int] = []
    means: list[NDArray[np.float32]] = []
    while len(left):
        overlaps = ious(candidates.boxes[left[:1]], candidates.boxes[left])[0] > iou_threshold
        overlaps[0] = True
        best.append(int(left[0]))
        group, left = left[overlaps], left[~overlaps]
        means.append(np.average(places[group], axis=0, weights=candidates.scores[group]))
    kept = candidates.select(np.array(best, np.intp))
    averages = np.array(means, np.float32).reshape(len(best), places.shape[1])
    return Candidates(boxes=averages[:, :_BOX], scores=kept.scores, class_ids=kept.class_ids, extras=averages[:, _BOX:])


_TASKS = (TaskType.OBJECT_DETECTION,)
_ANCHORS = "[b, N, 4 + 2 * keypoints] and [b, N, 1] for the anchors of 128, 192, 224 or 256 pixels"
LAYOUTS = (
    Layout(("yunet",), _TASKS, "cls, obj and bbox for the strides 8, 16 and 32", _recognise_yunet),
    Layout(("mediapipe",), _TASKS, _ANCHORS, _recognise_anchors),
)
