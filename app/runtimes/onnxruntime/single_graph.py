"""Models of one graph: vision models, and those that are served as they are."""

from functools import partial

from app.engine.description import ModelDescription
from app.engine.servable import Servable
from app.runtimes.folder import confined
from app.runtimes.onnxruntime.inspection import inspect_model, told_task_of
from app.runtimes.onnxruntime.location import locate_graph
from app.runtimes.onnxruntime.session import Session
from app.runtimes.onnxruntime.tensors import bind_tensor_model, describe_tensor_model
from app.runtimes.onnxruntime.vision import bind_vision_model
from app.settings.model import ModelSource
from tasks.task import TaskType

__all__ = ("inspect_single_graph", "load_single_graph")

_IMAGE_RANK = 4


def inspect_single_graph(source: ModelSource) -> ModelDescription:
    """Work out what a model is, without keeping it.

    Raises:
        ModelError: when it cannot be understood.
    """
    session = Session(locate_graph(source), source.settings.onnxruntime, partial(confined, source=source))
    if _is_served_as_it_is(source, session):
        return describe_tensor_model(source, session)
    return inspect_model(source, session).description


def load_single_graph(source: ModelSource) -> Servable:
    """Load a model and try it once.

    Raises:
        ModelError: when it cannot be understood, or cannot answer.
    """
    session = Session(locate_graph(source), source.settings.onnxruntime, partial(confined, source=source))
    if _is_served_as_it_is(source, session):
        return bind_tensor_model(source, session)
    return bind_vision_model(source, inspect_model(source, session))


def _is_served_as_it_is(source: ModelSource, session: Session) -> bool:
    """Whether the owner says so or, where neither owner nor file names a task, no input could be a picture."""
    if source.settings.task_type is not None:
        return source.settings.task_type is TaskType.TENSOR
    could_be_a_picture = any(len(spec.shape) == _IMAGE_RANK for spec in session.inputs)
    return not could_be_a_picture and told_task_of(source, session) is None
