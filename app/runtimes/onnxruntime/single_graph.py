"""Load models with one graph: vision models, and tensor models."""

from collections.abc import Callable
from functools import partial

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable
from app.runtimes.folder import resolve_confined
from app.runtimes.onnxruntime.files.location import locate_graph
from app.runtimes.onnxruntime.graph_session import GraphSession
from app.runtimes.onnxruntime.heads import bind_vision_model
from app.runtimes.onnxruntime.images.inputs import is_single_image
from app.runtimes.onnxruntime.inspection import inspect_model, read_declared_task
from app.runtimes.onnxruntime.precision import describe_precision, is_accelerated
from app.runtimes.onnxruntime.session import Session
from app.runtimes.onnxruntime.tensors import bind_tensor_model, describe_tensor_model
from app.settings.model import ModelSource, PreprocessingSettings
from tasks.task import TaskType

__all__ = ("inspect_single_graph", "load_single_graph", "open_session")

_IMAGE_RANK = 4


def open_session(source: ModelSource) -> Session:
    """Load the graph of a model with ONNX Runtime.

    Raises:
        ModelError: if there is not one graph, or it cannot be loaded.
    """
    session = Session(locate_graph(source), source.settings.onnxruntime, partial(resolve_confined, source=source))
    precision = source.settings.precision
    if precision != "fp32" and source.settings.runtime in (None, "onnxruntime"):
        session.facts = (describe_precision(source, session.file, accelerated=is_accelerated(precision)),)
    return session


def inspect_single_graph(
    source: ModelSource, open_graph: Callable[[ModelSource], GraphSession] = open_session
) -> ModelMetadata:
    """Describe a model without keeping it loaded.

    Args:
        source: the model.
        open_graph: loads its graph.

    Raises:
        ModelError: if its task or layout cannot be determined.
    """
    session = open_graph(source)
    if _is_tensor_model(source, session):
        return describe_tensor_model(source, session)
    return inspect_model(source, session).description


def load_single_graph(
    source: ModelSource, open_graph: Callable[[ModelSource], GraphSession] = open_session
) -> Servable:
    """Load a model and test it once.

    Args:
        source: the model.
        open_graph: loads its graph.

    Raises:
        ModelError: if its task or layout cannot be determined, or the test fails.
    """
    session = open_graph(source)
    if _is_tensor_model(source, session):
        return bind_tensor_model(source, session)
    return bind_vision_model(source, inspect_model(source, session))


def _is_tensor_model(source: ModelSource, session: GraphSession) -> bool:
    """Return whether the model takes tensors.

    It does if the settings declare the task TENSOR without a preprocessing, or if no task is declared and no input can
    be an image.

    An input without a batch dimension is taken for an image only if the outputs are those of torchvision's detectors.
    """
    if source.settings.task_type is not None:
        has_preprocessing = source.settings.preprocessing != PreprocessingSettings()
        return source.settings.task_type is TaskType.TENSOR and not has_preprocessing
    has_image_input = any(len(spec.shape) == _IMAGE_RANK for spec in session.inputs) or (
        any(is_single_image(spec) for spec in session.inputs)
        and {"boxes", "labels", "scores"} <= {spec.name for spec in session.outputs}
    )
    return not has_image_input and read_declared_task(source, session) is None
