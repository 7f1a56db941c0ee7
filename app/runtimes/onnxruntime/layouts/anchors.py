"""Decode MediaPipe's detectors of faces (BlazeFace), palms and persons: offsets from fixed anchors.

There are two outputs: ``regressors`` [b, N, 4 + 2 * K] and ``classificators`` [b, N, 1], as tf2onnx names those of
BlazeFace. A row is cx, cy, w, h and K points in input pixels, where cx, cy and the points are relative to the centre of
a cell. Scores are logits. Cells follow each other by row, with several anchors each, from the finest grid to the
coarsest. Overlapping boxes of one object are averaged by their scores (`NonMaxSuppressionCalculator`, WEIGHTED).
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.preprocessing import HALVES, ONES, ZEROS, PartialPreprocessing
from app.runtimes.onnxruntime.layouts.layout import (
    BoxDecoder,
    Candidates,
    GraphView,
    Layout,
    Match,
    Output,
    best_indices,
    keypoints_fact,
    sigmoid,
)
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType
from tasks.vision.boxes import ious, xywh_to_xyxy

_NAME = "mediapipe"
_GRIDS = {
    (128, 896): ((8, 2), (16, 6)),
    (256, 896): ((16, 2), (32, 6)),
    (192, 2304): ((4, 1),),
    (192, 2016): ((8, 2), (16, 6)),
    (224, 2254): ((8, 2), (16, 2), (32, 6)),
}
"""Stride in pixels and anchors of each cell, by the side of the input and the number of rows."""
_OBJECTS = {16: "face", 18: "palm", 12: "person"}
"""Labels by the width of a row."""
_BOX = 4
_MAX_CANDIDATES = 1000


def _recognise(view: GraphView) -> Match | None:
    outputs = _rows_and_scores(view)
    if outputs is None:
        return None
    rows, _ = outputs
    height, width = view.inputs.sides
    _, count, numbers = rows.shape
    grids, label = _GRIDS.get((height, count)), _OBJECTS.get(numbers)
    if height != width or grids is None or label is None:
        return None
    keypoints = ((numbers - _BOX) // 2, 2)
    # Palms are detected in pixels of 0..1, all others in pixels of -1..1.
    mean, std = (ZEROS, ONES) if label == "palm" else (HALVES, HALVES)
    return Match(
        layout=_NAME,
        decoder=BoxDecoder(partial(_find, centres=_centres(height, grids)), keypoints),
        outputs=outputs,
        by_names=True,
        classes=1,
        names=(label,),
        preprocessing=PartialPreprocessing(
            resize="letterbox",
            interpolation="bilinear",
            antialias=False,
            fill=0,
            scale=1 / 255,
            mean=mean,
            std=std,
            channel_order="RGB",
        ),
        facts=(keypoints_fact(keypoints, Origin.SHAPES),),
    )


def _rows_and_scores(view: GraphView) -> tuple[Output, Output] | None:
    if len(view.outputs) != 2 or not all(output.is_float and output.blank.ndim == 3 for output in view.outputs):
        return None
    scores, rows = sorted(view.outputs, key=lambda output: output.shape[2])
    return (rows, scores) if scores.shape == (*rows.shape[:2], 1) else None


def _centres(side: int, grids: tuple[tuple[int, int], ...]) -> NDArray[np.float32]:
    """Return the (N, 2) centres of the cells of all anchors, pixels."""
    parts: list[NDArray[np.float32]] = []
    for stride, anchors in grids:
        ticks = (np.arange(side // stride, dtype=np.float32) + 0.5) * stride
        cells = np.stack(np.meshgrid(ticks, ticks), axis=2).reshape(-1, 2)
        parts.append(np.repeat(cells, anchors, axis=0))
    return np.concatenate(parts)


def _find(answer: RawOutputs, parameters: DetectionParameters, *, centres: NDArray[np.float32]) -> Candidates:
    rows, logits = answer.outputs
    scores = sigmoid(logits[:, 0])
    chosen = best_indices(scores, parameters.score_threshold, _MAX_CANDIDATES)
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
    return _averaged(candidates, parameters.iou_threshold)


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


ANCHORS = Layout(
    (_NAME,),
    (TaskType.OBJECT_DETECTION,),
    "[b, N, 4 + 2 * keypoints] and [b, N, 1] for the anchors of 128, 192, 224 or 256 pixels",
    _recognise,
)
