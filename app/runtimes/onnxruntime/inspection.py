"""What a model is, worked out from its settings, its own metadata, the files beside it, and one run on a blank picture.

Settings come before metadata, metadata before the files beside the model, those before shapes, shapes before guesses.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.description import ModelDescription, Origin
from app.runtimes.onnxruntime.evidence import Evidence, Facts
from app.runtimes.onnxruntime.graph import ImageGraph
from app.runtimes.onnxruntime.inputs import ImageInputs, read_inputs
from app.runtimes.onnxruntime.labels import Labels, decide_labels, listed_labels
from app.runtimes.onnxruntime.layouts.choice import choose_layout, told_task
from app.runtimes.onnxruntime.layouts.layout import Match, Output, Reading, ReadsText, View
from app.runtimes.onnxruntime.metadata import read_metadata
from app.runtimes.onnxruntime.neighbours import read_neighbours
from app.runtimes.onnxruntime.preprocessing import decide_preprocessing, decide_size
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import InferenceError
from tasks.exchange.tensor import Datatype
from tasks.task import TaskType

__all__ = ("Inspection", "inspect_model", "told_task_of")

_PLATFORM = "onnx"
_LARGEST_INPUT = 2**30
"""Numbers: four gigabytes. A file that asks for more is damaged or hostile."""
_LINE = (48, 320)
"""(height, width) in pixels, at which recognisers of text lines can be tried."""


class Inspection(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A model understood, its graph ready to run.

    Attributes:
        description: what is known of it, and how.
        graph: takes pictures.
        labels: names its classes.
        reading: makes answers of its outputs.
    """

    description: ModelDescription
    graph: ImageGraph
    labels: Labels
    reading: Reading


def told_task_of(source: ModelSource, session: Session) -> TaskType | None:
    """What a model does, where its files say so.

    Raises:
        ModelError: for a task of no known task type, or files that cannot be read.
    """
    told = told_task(_evidence(source, session))
    return told[0] if told else None


def inspect_model(source: ModelSource, session: Session) -> Inspection:
    """Understand the vision model whose graph is `session`.

    Raises:
        ModelError: when it cannot run, or is of no known kind.
    """
    evidence = _evidence(source, session)
    facts = Facts()
    inputs = read_inputs(session.inputs, evidence)
    told = told_task(evidence)
    listed = listed_labels(evidence)
    view = View(
        inputs=inputs,
        outputs=_run_blank(session, inputs, told[0] if told else None, evidence),
        evidence=evidence,
        told=told[0] if told else None,
        classes=None if listed is None else len(listed[0]),
    )
    found = choose_layout(view, facts)
    labels = _decide_labels(found, listed, evidence, facts)
    size = decide_size(inputs, evidence, facts, found.task_type, found.conventions)
    preprocessing = decide_preprocessing(inputs, size, found.task_type, evidence, facts, found.conventions)
    _note_input(inputs, facts)
    description = ModelDescription(
        task_type=found.task_type,
        platform=_PLATFORM,
        layout=found.layout,
        labels=labels.names,
        inputs=session.inputs,
        outputs=session.outputs,
        facts=facts.recorded,
    )
    graph = ImageGraph(session, inputs, preprocessing, [output.name for output in found.outputs])
    return Inspection(description=description, graph=graph, labels=labels, reading=found.reading)


def _evidence(source: ModelSource, session: Session) -> Evidence:
    return Evidence(
        file=session.file,
        settings=source.settings,
        metadata=read_metadata(session.file, session.metadata),
        neighbours=read_neighbours(source, session.file),
    )


def _decide_labels(
    found: Match, listed: tuple[tuple[str, ...], Origin] | None, evidence: Evidence, facts: Facts
) -> Labels:
    if isinstance(found.reading, ReadsText):
        return Labels(())
    if listed is None and found.names:
        listed = found.names, Origin.CONVENTION
    return decide_labels(listed, found.classes, evidence, facts)


def _note_input(inputs: ImageInputs, facts: Facts) -> None:
    batch = "any number of images at once" if inputs.batch == -1 else f"{inputs.batch} at once"
    facts.note("batch", batch, Origin.MODEL_FILE)
    facts.note("input datatype", inputs.image.datatype.value, Origin.MODEL_FILE)
    if inputs.channels_last:
        facts.note("channels", "last: [batch, height, width, 3]", Origin.SHAPES)
    for spec in (inputs.target_sizes, inputs.pixel_mask):
        if spec is not None:
            facts.note("further input", f"{spec.name}, filled in here", Origin.MODEL_FILE)


def _run_blank(
    session: Session, inputs: ImageInputs, task_type: TaskType | None, evidence: Evidence
) -> Sequence[Output]:
    """The outputs for a black picture, whose shapes hold for every picture."""
    size = decide_size(inputs, evidence, Facts(), task_type)
    if evidence.settings.preprocessing.size is None and _takes_lines(inputs, task_type, evidence):
        height, width = inputs.sides
        size = _LINE[0] if height == -1 else height, _LINE[1] if width == -1 else width
    shape = inputs.shape(max(inputs.batch, 1), *size)
    if math.prod(shape) > _LARGEST_INPUT:
        raise evidence.error(f"its input {list(shape)} holds more than {_LARGEST_INPUT:,} numbers")
    for spec in session.outputs:
        if spec.datatype in (Datatype.BF16, Datatype.BYTES):
            raise evidence.error(f"its output {spec.name!r} is of datatype {spec.datatype}, which is not understood")
    try:
        blanks: list[NDArray[Any]] = session.run(inputs.feeds(np.zeros(shape, inputs.image.datatype.dtype), *size))
    except InferenceError as error:
        hint = ""
        if -1 in inputs.sides:
            hint = (
                '; if that size is wrong, declare {"preprocessing": {"size": [height, width]}} in model-settings.json'
            )
        raise ModelError(f"{evidence.file} cannot run on a {size[0]}x{size[1]} image: {error.message}{hint}") from None
    return [Output(name=spec.name, blank=blank) for spec, blank in zip(session.outputs, blanks, strict=True)]


def _takes_lines(inputs: ImageInputs, task_type: TaskType | None, evidence: Evidence) -> bool:
    """Whether the graph reads text, in pictures of one line."""
    reads = evidence.metadata.characters is not None or task_type is TaskType.IMAGE_TEXT_TO_TEXT
    return reads and -1 in inputs.sides
