"""Image segmentation."""

from collections.abc import Sequence

from app.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layouts.layout import MaskDecoder
from tasks.image_segmentation import SegmentationInput, Segments

__all__ = ("OnnxImageSegmenter",)


class OnnxImageSegmenter:
    """An `ImageSegmenter`.

    Args:
        graph: the model.
        labels: one for each class.
        decoder: decodes its outputs.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, decoder: MaskDecoder) -> None:
        self._graph = graph
        self._labels = labels
        self._decoder = decoder

    def __call__(self, inputs: Sequence[SegmentationInput], /) -> Sequence[Segments]:
        answers = self._graph.run([item.image for item in inputs])
        return [self._segments(item, answer) for item, answer in zip(inputs, answers, strict=True)]

    def _segments(self, item: SegmentationInput, answer: RawOutputs) -> Segments:
        outline = self._decoder.decode(answer, item)
        labels = self._labels.of(outline.class_ids.tolist())
        return Segments(labels=labels, scores=outline.scores, contours=outline.contours)
