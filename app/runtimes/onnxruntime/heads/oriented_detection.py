"""Object detection with oriented boxes."""

from collections.abc import Sequence

from app.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layouts.layout import OrientedBoxDecoder
from tasks.object_detection import DetectionInput
from tasks.oriented_object_detection import OrientedDetections

__all__ = ("OnnxOrientedObjectDetector",)


class OnnxOrientedObjectDetector:
    """An `OrientedObjectDetector`.

    Args:
        graph: the model.
        labels: one for each class.
        decoder: decodes its outputs.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, decoder: OrientedBoxDecoder) -> None:
        self._graph = graph
        self._labels = labels
        self._decoder = decoder

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[OrientedDetections]:
        answers = self._graph.run([item.image for item in inputs])
        return [self._detections(item, answer) for item, answer in zip(inputs, answers, strict=True)]

    def _detections(self, item: DetectionInput, answer: RawOutputs) -> OrientedDetections:
        candidates = self._decoder.decode(answer, item.parameters)
        return OrientedDetections(
            labels=self._labels.of(candidates.class_ids.tolist()),
            scores=candidates.scores,
            boxes=answer.placement.rotated_boxes_to_image(candidates.boxes),
            width=item.image.width,
            height=item.image.height,
        )
