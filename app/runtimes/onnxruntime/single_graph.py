"""Load models with one graph: vision models, and tensor models."""

from functools import partial

from app.engine.model_metadata import ModelMetadata
from app.engine.servable import Servable
from app.runtimes.folder import resolve_confined
from app.runtimes.onnxruntime.inspection import inspect_model, read_declared_task
from app.runtimes.onnxruntime.location import locate_graph
from app.runtimes.onnxruntime.session import Session
from app.runtimes.onnxruntime.tensors import bind_tensor_model, describe_tensor_model
from app.runtimes.onnxruntime.vision import bind_vision_model
from app.settings.model import ModelSource
from tasks.task import TaskType

__all__ = ("inspect_single_graph", "load_single_graph")

_IMAGE_RANK = 4


def inspect_single_graph(source: ModelSource) -> ModelMetadata:
    """Describe a model without keeping it loaded.

    Raises:
        ModelError: if its task or layout cannot be determined.
    """
    session = Session(locate_graph(source), source.settings.onnxruntime, partial(resolve_confined, source=source))
    if _is_tensor_model(source, session):
        return describe_tensor_model(source, session)
    return inspect_model(source, session).description


def load_single_graph(source: ModelSource) -> Servable:
    """Load a model and test it once.

    Raises:
        ModelError: if its task or layout cannot be determined, or the test fails.
    """
    session = Session(locate_graph(source), source.settings.onnxruntime, partial(resolve_confined, source=source))
    if _is_tensor_model(source, session):
        return bind_tensor_model(source, session)
    return bind_vision_model(source, inspect_model(source, session))


def _is_tensor_model(source: ModelSource, session: Session) -> bool:
    """Return whether the settings declare the task TENSOR, or no task is declared and no input can be an image."""
    if source.settings.task_type is not None:
        return source.settings.task_type is TaskType.TENSOR
    has_image_input = any(len(spec.shape) == _IMAGE_RANK for spec in session.inputs)
    return not has_image_input and read_declared_task(source, session) is None
