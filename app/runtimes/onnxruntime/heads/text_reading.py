"""Text recognition in images of one line."""

from collections.abc import Sequence

from app.runtimes.onnxruntime.graph import ImageGraph
from app.runtimes.onnxruntime.layouts.layout import TextDecoder
from tasks.image_text_to_text import Answers, PromptedImage
from tasks.text.conversation import reject_conversation

__all__ = ("OnnxTextReader",)


class OnnxTextReader:
    """A `VisionLanguageModel` that answers every prompt with the recognised text.

    Args:
        graph: the model.
        decoder: decodes its outputs.
    """

    def __init__(self, graph: ImageGraph, decoder: TextDecoder) -> None:
        self._graph = graph
        self._decoder = decoder

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        for item in inputs:
            reject_conversation(item.parameters.messages, item.path)
        texts = [self._decoder.decode(answer) for answer in self._graph.run([item.image for item in inputs])]
        return [
            Answers(prompts=item.prompts, answers=[text] * len(item.prompts))
            for item, text in zip(inputs, texts, strict=True)
        ]
