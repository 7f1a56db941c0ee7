"""Output tensors for images, as the graph returns them."""

from collections.abc import Sequence

import numpy as np

from app.runtimes.onnxruntime.graph import ImageGraph
from tasks.inference.tensor import Tensor, TensorSpec
from tasks.tensor_inference import ImageTensorInput, ImageTensors

__all__ = ("OnnxImageTensorModel",)


class OnnxImageTensorModel:
    """An `ImageTensorModel`.

    Args:
        graph: the model.
        outputs: its outputs, in the order of `graph`.
    """

    def __init__(self, graph: ImageGraph, outputs: Sequence[TensorSpec]) -> None:
        self._graph = graph
        self._outputs = outputs

    def __call__(self, inputs: Sequence[ImageTensorInput], /) -> Sequence[ImageTensors]:
        return [
            ImageTensors(
                [
                    Tensor(name=spec.name, datatype=spec.datatype, data=np.asarray(array))
                    for spec, array in zip(self._outputs, answer.outputs, strict=True)
                ]
            )
            for answer in self._graph.run([item.image for item in inputs])
        ]
