"""Turned boxes."""

from collections.abc import Sequence

import numpy as np

from app.runtimes.onnxruntime.graph import ImageGraph, RawAnswer
from app.runtimes.onnxruntime.heads.candidates import read_candidates
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layout import Layout
from tasks.object_detection import DetectionInput
from tasks.oriented_object_detection import OrientedDetections
from tasks.vision.boxes import suppress_rotated_boxes

__all__ = ("OnnxOrientedObjectDetector",)

_MOST_CANDIDATES = 2000
"""Overlaps of rotated boxes are computed one by one, so that many would take seconds."""


class OnnxOrientedObjectDetector:
    """An `OrientedObjectDetector` of one output; r is in radians, clockwise with y down.

    Args:
        graph: the model.
        labels: one for each class.
        layout: how the output is read.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, layout: Layout) -> None:
        self._graph = graph
        self._labels = labels
        self._layout = layout

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[OrientedDetections]:
        answers = self._graph.answers([item.image for item in inputs])
        return [self._detections(item, answer) for item, answer in zip(inputs, answers, strict=True)]

    def _detections(self, item: DetectionInput, answer: RawAnswer) -> OrientedDetections:
        wanted = item.parameters
        found = read_candidates(answer.outputs[0], self._layout, wanted.score_threshold, _MOST_CANDIDATES)
        boxes = np.concatenate([found.boxes, found.extras], axis=1)
        if not self._layout.suppressed:
            kept = suppress_rotated_boxes(boxes, found.scores, found.class_ids, wanted.iou_threshold)
            found, boxes = found.take(kept), boxes[kept]
        return OrientedDetections(
            labels=self._labels.of(found.class_ids.tolist()),
            scores=found.scores,
            boxes=answer.placement.rotated_boxes_to_image(boxes),
            width=item.image.width,
            height=item.image.height,
        )
