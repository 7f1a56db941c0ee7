"""Class scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.graph import ImageGraph
from app.runtimes.onnxruntime.labels import Labels
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.image_classification import Classification, ClassificationInput

__all__ = ("OnnxImageClassifier",)


class OnnxImageClassifier:
    """An `ImageClassifier` of output [b, nc].

    Args:
        graph: the model.
        labels: one for each class.
        logits: whether softmax has still to be applied.
    """

    def __init__(self, graph: ImageGraph, labels: Labels, *, logits: bool) -> None:
        self._graph = graph
        self._labels = labels
        self._logits = logits

    def __call__(self, inputs: Sequence[ClassificationInput], /) -> Sequence[Classification]:
        return [
            Classification(labels=self._labels.names, scores=self._scores(answer.outputs[0]))
            for answer in self._graph.answers([item.image for item in inputs])
        ]

    def _scores(self, output: NDArray[Any]) -> NDArray[np.float32]:
        values = output.astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            raise InferenceError(ErrorKind.MODEL_FAILED, "The model answered with scores that are not finite numbers")
        return softmax(values) if self._logits else values


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """(nc,) logits to probabilities; the largest is taken away first, so that none overflows."""
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()
