"""Object detection with upright boxes."""

from collections.abc import Sequence
from operator import attrgetter

from app.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layouts.layout import BoxDecoder
from tasks.object_detection import DetectionInput, Detections

__all__ = ("OnnxObjectDetector",)

_image = attrgetter("image")


class OnnxObjectDetector:
    """An `ObjectDetector`.

    Args:
        graph: the model.
        labels: one for each class.
        decoder: decodes its outputs.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, decoder: BoxDecoder) -> None:
        self._graph = graph
        self._labels = labels
        self._decoder = decoder

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        answers = self._graph.run(list(map(_image, inputs)))
        detections: list[Detections] = []
        for item, answer in zip(inputs, answers, strict=True):
            detections.append(self._detections(item, answer))
        return detections

    def _detections(self, item: DetectionInput, answer: RawOutputs) -> Detections:
        candidates = self._decoder.decode(answer, item.parameters)
        keypoints = None
        if self._decoder.keypoints is not None:
            points = candidates.extras.reshape(-1, *self._decoder.keypoints)
            keypoints = answer.placement.keypoints_to_image(points)
        return Detections(
            labels=self._labels.of(candidates.class_ids.tolist()),
            scores=candidates.scores,
            boxes=answer.placement.boxes_to_image(candidates.boxes),
            keypoints=keypoints,
        )
