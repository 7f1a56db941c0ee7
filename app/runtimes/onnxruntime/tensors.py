"""Graphs served as they are: tensors in, tensors out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.description import Fact, ModelDescription, Origin
from app.engine.servable import BoundServable, Servable
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelSource
from tasks.exchange.tensor import Tensor
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput

__all__ = ("OnnxTensorModel", "bind_tensor_model", "describe_tensor_model")


class OnnxTensorModel:
    """A `TensorModel` of any graph.

    Args:
        session: the graph.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, inputs: Sequence[TensorsInput], /) -> Sequence[Tensors]:
        return [Tensors(self._outputs(self._session.run(each.tensors))) for each in inputs]

    def _outputs(self, arrays: Sequence[NDArray[Any]]) -> Sequence[Tensor]:
        return [
            Tensor(name=spec.name, datatype=spec.datatype, data=_as_bytes(np.asarray(array)))
            for spec, array in zip(self._session.outputs, arrays, strict=True)
        ]


def describe_tensor_model(source: ModelSource, session: Session) -> ModelDescription:
    """What there is to say of such a graph."""
    declared = source.settings.task_type is TaskType.TENSOR
    fact = Fact("task type", TaskType.TENSOR, Origin.DECLARED if declared else Origin.SHAPES)
    return ModelDescription(
        task_type=TaskType.TENSOR,
        platform="onnx",
        layout="tensors",
        labels=(),
        inputs=session.inputs,
        outputs=session.outputs,
        facts=(fact,),
    )


def bind_tensor_model(source: ModelSource, session: Session) -> Servable:
    """Make a graph ready to be served as it is."""
    task = TensorInference(session.inputs, session.outputs)
    description = describe_tensor_model(source, session)
    return BoundServable(task, OnnxTensorModel(session), description, source.settings.parameters)


def _as_bytes(array: NDArray[Any]) -> NDArray[Any]:
    """Strings, which ONNX Runtime gives as `str`, as the `bytes` that a BYTES tensor holds."""
    if array.dtype.kind not in "OUS":
        return array
    encoded = np.empty(array.size, object)
    encoded[:] = [value.encode() if isinstance(value, str) else bytes(value) for value in array.ravel().tolist()]
    return encoded.reshape(array.shape)
