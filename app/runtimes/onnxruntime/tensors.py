"""Serve a graph without task or preprocessing: tensors in, tensors out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Fact, ModelMetadata, Origin
from app.runtimes.onnxruntime.files.model_files import read_model_files
from app.runtimes.onnxruntime.graph_session import GraphSession
from app.runtimes.onnxruntime.labels import declared_labels, format_labels
from app.settings.model import ModelError, ModelSource
from tasks.inference.tensor import Tensor
from tasks.task import TaskType
from tasks.tensor_inference import Tensors, TensorsInput

__all__ = ("OnnxTensorModel", "describe_tensor_model")


class OnnxTensorModel:
    """A `TensorModel` of any graph."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    def __call__(self, inputs: Sequence[TensorsInput], /) -> Sequence[Tensors]:
        return [Tensors(self._outputs(self._session.run(item.tensors))) for item in inputs]

    def _outputs(self, arrays: Sequence[NDArray[Any]]) -> Sequence[Tensor]:
        return [
            Tensor(name=spec.name, datatype=spec.datatype, data=_as_bytes(np.asarray(array)))
            for spec, array in zip(self._session.outputs, arrays, strict=True)
        ]


def describe_tensor_model(source: ModelSource, session: GraphSession) -> ModelMetadata:
    """Describe a tensor model."""
    declared = source.settings.task_type is TaskType.TENSOR
    labels, facts = _labels(source, session)
    task_type = Fact("task type", TaskType.TENSOR, Origin.DECLARED if declared else Origin.SHAPES)
    return ModelMetadata(
        task_type=TaskType.TENSOR,
        platform="onnx",
        layout="tensors",
        labels=labels,
        inputs=session.inputs,
        outputs=session.outputs,
        facts=(task_type, *facts, *session.facts),
        properties=session.metadata,
    )


def _labels(source: ModelSource, session: GraphSession) -> tuple[Sequence[str], Sequence[Fact]]:
    """Return the class names, and a fact with their origin."""
    declared = source.settings.labels
    try:
        names_and_origin = (
            (declared, Origin.DECLARED)
            if isinstance(declared, tuple) and declared
            else declared_labels(read_model_files(source, session))
        )
    except ModelError as error:
        # Labels are optional here, so unreadable metadata must not prevent serving.
        return (), [Fact("labels", f"none, {error}", Origin.MODEL_FILE)]
    if names_and_origin is None:
        return (), []
    labels, origin = names_and_origin
    return labels, [Fact("labels", format_labels(labels), origin)]


def _as_bytes(array: NDArray[Any]) -> NDArray[Any]:
    """Encode strings, which ONNX Runtime returns as `str`, to the `bytes` of a BYTES tensor."""
    if array.dtype.kind not in "OUS":
        return array
    encoded = np.empty(array.size, object)
    encoded[:] = [value.encode() if isinstance(value, str) else bytes(value) for value in array.ravel().tolist()]
    return encoded.reshape(array.shape)
