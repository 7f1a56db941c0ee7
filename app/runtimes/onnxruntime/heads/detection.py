"""Upright boxes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.graph import ImageGraph, RawAnswer
from app.runtimes.onnxruntime.heads.candidates import Candidates, read_candidates
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layout import Layout
from tasks.object_detection import DetectionInput, DetectionParameters, Detections
from tasks.vision.boxes import suppress_boxes, xywh_to_xyxy

__all__ = ("OnnxObjectDetector", "detect")

_MOST_CANDIDATES = 30_000
"""As many as Ultralytics compares with each other."""


class OnnxObjectDetector:
    """An `ObjectDetector` of one output.

    Args:
        graph: the model.
        labels: one for each class.
        layout: how the output is read.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, layout: Layout) -> None:
        self._graph = graph
        self._labels = labels
        self._layout = layout

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        answers = self._graph.answers([item.image for item in inputs])
        return [self._detections(item, answer) for item, answer in zip(inputs, answers, strict=True)]

    def _detections(self, item: DetectionInput, answer: RawAnswer) -> Detections:
        found = detect(answer.outputs[0], self._layout, item.parameters)
        return Detections(
            labels=self._labels.of(found.class_ids.tolist()),
            scores=found.scores,
            boxes=answer.placement.boxes_to_image(found.boxes),
        )


def detect(output: NDArray[Any], layout: Layout, parameters: DetectionParameters) -> Candidates:
    """One picture's objects, duplicates removed, their boxes (n, 4) xyxy in input pixels."""
    found = read_candidates(output, layout, parameters.score_threshold, _MOST_CANDIDATES)
    if layout.suppressed:
        return found
    boxes: NDArray[np.float32] = xywh_to_xyxy(found.boxes)
    kept = suppress_boxes(boxes, found.scores, found.class_ids, parameters.iou_threshold)
    return Candidates(
        boxes=boxes[kept], scores=found.scores[kept], class_ids=found.class_ids[kept], extras=found.extras[kept]
    )
