"""Text recognition in images of one line."""

from collections.abc import Sequence

from app.runtimes.onnxruntime.graph import ImageGraph
from app.runtimes.onnxruntime.layouts.layout import ReadsText
from tasks.image_text_to_text import Answers, PromptedImage

__all__ = ("OnnxTextReader",)


class OnnxTextReader:
    """A `VisionLanguageModel` that answers every prompt with the recognised text.

    Args:
        graph: the model.
        reading: decodes its outputs.
    """

    def __init__(self, graph: ImageGraph, reading: ReadsText) -> None:
        self._graph = graph
        self._reading = reading

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        texts = [self._reading.read(answer) for answer in self._graph.answers([item.image for item in inputs])]
        return [
            Answers(prompts=item.prompts, answers=[text] * len(item.prompts))
            for item, text in zip(inputs, texts, strict=True)
        ]
