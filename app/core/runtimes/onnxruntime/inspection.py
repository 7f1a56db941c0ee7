"""Inspect a model: read its settings, metadata and the files beside it, and run it once on a blank image.

The order of precedence is settings, metadata, files beside the graph, shapes, guesses.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from app.core.runtimes.label_files import format_labels
from app.core.runtimes.onnxruntime.files.model_files import ModelFiles, read_model_files
from app.core.runtimes.onnxruntime.graph import ImageGraph, ImageInputs, read_inputs
from app.core.runtimes.onnxruntime.images.decision import decide_preprocessing, decide_size
from app.core.runtimes.onnxruntime.layouts.choice import choose_layout
from app.core.runtimes.onnxruntime.layouts.layout import GraphOutput, GraphView, Match
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelError, ModelSource
from metadata.model import Fact, ModelMetadata, Origin
from tasks.inference.error import InferenceError
from tasks.inference.tensor import Datatype
from tasks.task import TaskType

_MAX_INPUT = 2**30
"""Elements: four gigabytes. A file that needs more is damaged or hostile."""
_TEXT_LINE_SIZE = (48, 320)
"""(height, width) of the blank input for text recognisers, pixels."""


class Inspection(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The result of an inspection. Its description names the origin of each fact."""

    description: ModelMetadata
    graph: ImageGraph
    match: Match


def inspect_model(source: ModelSource, session: GraphSession) -> Inspection:
    """Inspect the vision model whose graph is `session`.

    Raise ModelError if the graph cannot run, or its layout is unknown.
    """
    model_files = read_model_files(source, session)
    facts: list[Fact] = []
    inputs = read_inputs(session.inputs, model_files)
    labels = model_files.labels
    outputs, size = _run_blank(session, inputs, model_files)
    classes = None if labels is None else len(labels[0])
    view = GraphView(inputs=inputs, outputs=outputs, model_files=model_files, classes=classes, size=size)
    match = choose_layout(view, facts)
    labels = _decide_labels(match, model_files, facts)
    preprocessing = decide_preprocessing(inputs, model_files, facts, match.task_type, match.preprocessing)
    facts += _input_facts(inputs)
    read = {output.name for output in match.outputs}
    shapes = {output.name: list(output.shape) for output in outputs}
    others = [f"{spec.name} {shapes.get(spec.name, '')}".rstrip() for spec in session.outputs if spec.name not in read]
    if others:
        facts.append(Fact("left out", ", ".join(others), Origin.MODEL_FILE))
    if model_files.metadata.description:
        facts.append(Fact("description", model_files.metadata.description, Origin.MODEL_FILE))
    description = ModelMetadata(
        task_type=match.task_type,
        platform="onnx",
        layout=match.layout,
        labels=labels,
        inputs=session.inputs,
        outputs=session.outputs,
        facts=(*facts, *session.facts),
        properties=session.metadata,
        takes_images=match.task_type is TaskType.TENSOR,
    )
    graph = ImageGraph(
        session,
        inputs,
        preprocessing,
        [output.name for output in match.outputs],
        unbatched=match.unbatched,
        keep_datatypes=match.task_type is TaskType.TENSOR,
    )
    return Inspection(description=description, graph=graph, match=match)


def _decide_labels(match: Match, model_files: ModelFiles, facts: list[Fact]) -> Sequence[str]:
    """Return the labels in the files, else the layout's labels, else class numbers.

    Raise ModelError if the numbers of labels and classes differ.
    """
    declared = model_files.labels
    if match.task_type is TaskType.IMAGE_TEXT_TO_TEXT or (declared is None and match.task_type is TaskType.TENSOR):
        return ()
    classes = match.classes
    # PaddleOCR's exporters also list the classes of a classifier as characters.
    characters = tuple((model_files.metadata.characters or "").splitlines())
    if declared is None and match.names:
        declared = match.names, Origin.CONVENTION
    elif declared is None and characters and len(characters) == classes:
        declared = characters, Origin.MODEL_FILE
    if declared is None:
        numbers = "" if classes is None else f", 0..{classes - 1}"
        facts.append(Fact("labels", f"none found, class numbers are used{numbers}", Origin.GUESSED))
        return tuple(map(str, range(classes or 0)))
    names, origin = declared
    file_name = model_files.label_file if origin in (Origin.DECLARED, Origin.LABEL_FILE) else ""
    if classes is not None and len(names) != classes:
        raise model_files.error(
            f"its output has {classes} classes, but {file_name or origin} lists {len(names)} labels; declare "
            f'"labels" in model-settings.json, one for each class'
        )
    facts.append(Fact("labels", format_labels(names) + (f" ({file_name})" if file_name else ""), origin))
    return names


def _input_facts(inputs: ImageInputs) -> list[Fact]:
    batch = "any number of images" if inputs.batch == -1 else f"{inputs.batch}"
    facts = [
        Fact("batch", batch, Origin.MODEL_FILE),
        Fact("input datatype", inputs.image.datatype.value, Origin.MODEL_FILE),
    ]
    if inputs.channels_last:
        facts.append(Fact("channels", f"last: [batch, height, width, {inputs.channels}]", Origin.SHAPES))
    return facts + [
        Fact("further input", f"{spec.name}, filled in by the server", Origin.MODEL_FILE) for spec in inputs.filled
    ]


def _run_blank(
    session: GraphSession, inputs: ImageInputs, model_files: ModelFiles
) -> tuple[Sequence[GraphOutput], tuple[int, int]]:
    """Return the outputs that the settings name, by default all, for a black image, and its (height, width).

    All copies of the graph run it. The shapes of outputs apply to every image.
    """
    task_type, _ = model_files.declared_task()
    if task_type is None and all(len(spec.shape) == 2 or "hidden" in spec.name for spec in session.outputs):
        # Only for the size: most graphs whose outputs are vectors take images of the size of classifiers.
        task_type = TaskType.IMAGE_CLASSIFICATION
    size = decide_size(inputs, model_files, [], task_type)
    reads_text = model_files.metadata.characters is not None or task_type is TaskType.IMAGE_TEXT_TO_TEXT
    if reads_text and model_files.settings.preprocessing.size is None:
        height, width = inputs.sides
        size = _TEXT_LINE_SIZE[0] if height == -1 else height, _TEXT_LINE_SIZE[1] if width == -1 else width
    batch, channels = max(inputs.batch, 1), inputs.channels
    shape = (batch, *size, channels) if inputs.channels_last else (batch, channels, *size)
    if math.prod(shape) > _MAX_INPUT:
        raise model_files.error(f"its input {list(shape)} has more than {_MAX_INPUT:,} elements")
    for spec in session.outputs:
        if spec.datatype is Datatype.BYTES:
            raise model_files.error(f"its output {spec.name!r} is of datatype {spec.datatype}, which is not supported")
    feeds = inputs.feeds(np.zeros(shape, inputs.image.datatype.dtype), *size)
    wrong_size = '; if that size is wrong, declare {"preprocessing": {"size": [height, width]}} in model-settings.json'
    try:
        if -1 in inputs.sides:
            session.check_memory(feeds)
        # The first call on a GPU compiles or selects kernels, which no request should wait for.
        *_, blanks = (session.run(feeds) for _ in range(session.copies))
    except (InferenceError, ModelError) as error:
        reason = error.message if isinstance(error, InferenceError) else f"it {error}, half of the memory that is free"
        raise ModelError(
            f"{model_files.file} cannot run on a {size[0]}x{size[1]} image: {reason}"
            f"{wrong_size if -1 in inputs.sides else ''}"
        ) from None
    pairs = zip(session.outputs, blanks, strict=True)
    by_name = {spec.name: GraphOutput(name=spec.name, blank=blank) for spec, blank in pairs}
    names = model_files.settings.outputs
    if names is None:
        return list(by_name.values()), size
    if not names or not by_name.keys() >= set(names):
        raise model_files.error(
            f"model-settings.json declares the outputs {', '.join(names) or 'none'}; "
            f"those of the graph are {', '.join(by_name)}"
        )
    return [by_name[name] for name in names], size
