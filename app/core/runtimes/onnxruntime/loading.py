"""Load ONNX models with one graph, for images or tensors."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from app.core.engine.models.servable import Servable
from app.core.runtimes.folder import resolve_confined
from app.core.runtimes.label_files import format_labels
from app.core.runtimes.onnxruntime.files.location import locate_graph
from app.core.runtimes.onnxruntime.files.model_files import read_model_files
from app.core.runtimes.onnxruntime.graph import is_single_image
from app.core.runtimes.onnxruntime.heads import OnnxImageModel, as_tensors, task_and_model
from app.core.runtimes.onnxruntime.images.image_batch import downscale_factor
from app.core.runtimes.onnxruntime.inspection import inspect_model
from app.core.runtimes.onnxruntime.precision import describe_precision, is_accelerated
from app.core.runtimes.onnxruntime.session import GraphSession, Session
from app.core.settings.model import ModelError, ModelSource, PreprocessingSettings
from metadata.model import Fact, ModelMetadata, Origin
from tasks.inference.error import InferenceError
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput

_IMAGE_RANK = 4

OpenGraph = Callable[[ModelSource], GraphSession]


def inspect(source: ModelSource, open_graph: OpenGraph | None = None) -> ModelMetadata:
    """Describe the model without keeping it loaded; `open_graph` as in `load`.

    Raise ModelError if its task or layout cannot be determined, or a file is missing.
    """
    session = (open_graph or open_session)(source)
    if _is_tensor_model(source, session):
        return _describe_tensor_model(source, session)
    return inspect_model(source, session).description


def load(source: ModelSource, open_graph: OpenGraph | None = None) -> Servable:
    """Load the model, and test it once if it takes images.

    By default ONNX Runtime loads its graph, else `open_graph`. Raise ModelError if its task or layout cannot be
    determined, a file is missing, or the test fails.
    """
    session = (open_graph or open_session)(source)
    if _is_tensor_model(source, session):
        task = TensorInference(session.inputs, session.outputs)
        description = _describe_tensor_model(source, session)

        def predict(inputs: Sequence[TensorsInput], /) -> Sequence[Tensors]:
            return [Tensors(as_tensors(session.outputs, session.run(item.tensors))) for item in inputs]

        return Servable(task, predict, description, source.settings.parameters)
    inspection = inspect_model(source, session)
    task, model, example = task_and_model(inspection)
    try:
        model([example])
    except InferenceError as error:
        raise ModelError(f"{source.folder}: the model cannot answer a blank image: {error.message}") from None
    preprocessing, downscale = inspection.graph.preprocessing, None
    if source.settings.preprocessing.reduced_decode and preprocessing.dynamic_size is None:
        downscale = partial(downscale_factor, preprocessing)
    defaults = {**inspection.match.parameters, **source.settings.parameters}
    servable = Servable(task, model, inspection.description, defaults, downscale)
    if source.settings.tensor_view and isinstance(model, OnnxImageModel):
        description = msgspec.structs.replace(
            inspection.description, task_type=TaskType.TENSOR, layout="tensors", takes_images=False, facts=()
        )
        servable.tensor_view = Servable(TensorInference(session.inputs, session.outputs), model, description, {})
    return servable


def open_session(source: ModelSource) -> Session:
    """Load the graph of a model with ONNX Runtime.

    Raise ModelError if there is not one graph, or it cannot be loaded.
    """
    session = Session(locate_graph(source), source.settings.onnxruntime, partial(resolve_confined, source=source))
    precision = source.settings.precision
    if precision != "fp32" and source.settings.runtime in (None, "onnxruntime"):
        session.facts = (describe_precision(source, session.file, accelerated=is_accelerated(precision)),)
    return session


def _is_tensor_model(source: ModelSource, session: GraphSession) -> bool:
    """Return whether TENSOR without a preprocessing is declared, or no task is declared and no input can be an image.

    An input without a batch dimension is taken for an image only if the outputs look like torchvision's detectors.
    """
    if source.settings.task_type is not None:
        has_preprocessing = source.settings.preprocessing != PreprocessingSettings()
        return source.settings.task_type is TaskType.TENSOR and not has_preprocessing
    has_image_input = any(len(spec.shape) == _IMAGE_RANK for spec in session.inputs) or (
        any(is_single_image(spec) for spec in session.inputs)
        and {"boxes", "labels", "scores"} <= {spec.name for spec in session.outputs}
    )
    return not has_image_input and read_model_files(source, session).declared_task()[0] is None


def _describe_tensor_model(source: ModelSource, session: GraphSession) -> ModelMetadata:
    declared, labels = source.settings.labels, ()
    origin = Origin.DECLARED if source.settings.task_type is TaskType.TENSOR else Origin.SHAPES
    facts = [Fact("task type", str(TaskType.TENSOR), origin)]
    try:
        if isinstance(declared, tuple) and declared:
            found = declared, Origin.DECLARED
        else:
            found = read_model_files(source, session).labels
    except ModelError as error:
        # Labels are optional here, so unreadable metadata must not prevent serving.
        found = None
        facts.append(Fact("labels", f"none, {error}", Origin.MODEL_FILE))
    if found is not None:
        labels, origin = found
        facts.append(Fact("labels", format_labels(labels), origin))
    return ModelMetadata(
        task_type=TaskType.TENSOR,
        platform="onnx",
        layout="tensors",
        labels=labels,
        inputs=session.inputs,
        outputs=session.outputs,
        facts=(*facts, *session.facts),
        properties=session.metadata,
    )
