"""Image classification."""

from collections.abc import Sequence

from app.runtimes.onnxruntime.graph import ImageGraph
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layouts.layout import ClassDecoder
from tasks.image_classification import Classification, ClassificationInput

__all__ = ("OnnxImageClassifier",)


class OnnxImageClassifier:
    """An `ImageClassifier`.

    Args:
        graph: the model.
        labels: one for each class.
        decoder: decodes its outputs.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, decoder: ClassDecoder) -> None:
        self._graph = graph
        self._labels = labels
        self._decoder = decoder

    def __call__(self, inputs: Sequence[ClassificationInput], /) -> Sequence[Classification]:
        return [
            Classification(labels=self._labels.names, scores=self._decoder.decode(answer))
            for answer in self._graph.run([item.image for item in inputs])
        ]
