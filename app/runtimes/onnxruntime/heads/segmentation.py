"""Image segmentation."""

from collections.abc import Sequence

from app.runtimes.onnxruntime.graph import ImageGraph, RawAnswer
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layouts.layout import ReadsMasks
from tasks.image_segmentation import SegmentationInput, Segments

__all__ = ("OnnxImageSegmenter",)


class OnnxImageSegmenter:
    """An `ImageSegmenter`.

    Args:
        graph: the model.
        labels: one for each class.
        reading: decodes its outputs.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, reading: ReadsMasks) -> None:
        self._graph = graph
        self._labels = labels
        self._reading = reading

    def __call__(self, inputs: Sequence[SegmentationInput], /) -> Sequence[Segments]:
        answers = self._graph.answers([item.image for item in inputs])
        return [self._segments(item, answer) for item, answer in zip(inputs, answers, strict=True)]

    def _segments(self, item: SegmentationInput, answer: RawAnswer) -> Segments:
        found = self._reading.outline(answer, item)
        labels = self._labels.of(found.class_ids.tolist())
        return Segments(labels=labels, scores=found.scores, contours=found.contours)
