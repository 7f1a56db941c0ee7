"""Object detection with oriented boxes."""

from collections.abc import Sequence

from app.runtimes.onnxruntime.graph import ImageGraph, RawAnswer
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layouts.layout import ReadsTurnedBoxes
from tasks.object_detection import DetectionInput
from tasks.oriented_object_detection import OrientedDetections

__all__ = ("OnnxOrientedObjectDetector",)


class OnnxOrientedObjectDetector:
    """An `OrientedObjectDetector`.

    Args:
        graph: the model.
        labels: one for each class.
        reading: decodes its outputs.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, reading: ReadsTurnedBoxes) -> None:
        self._graph = graph
        self._labels = labels
        self._reading = reading

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[OrientedDetections]:
        answers = self._graph.answers([item.image for item in inputs])
        return [self._detections(item, answer) for item, answer in zip(inputs, answers, strict=True)]

    def _detections(self, item: DetectionInput, answer: RawAnswer) -> OrientedDetections:
        found = self._reading.find(answer, item.parameters)
        return OrientedDetections(
            labels=self._labels.of(found.class_ids.tolist()),
            scores=found.scores,
            boxes=answer.placement.rotated_boxes_to_image(found.boxes),
            width=item.image.width,
            height=item.image.height,
        )
