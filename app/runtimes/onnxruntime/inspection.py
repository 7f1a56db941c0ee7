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
from app.runtimes.onnxruntime.labels import Labels, decide_labels, listed_labels
from app.runtimes.onnxruntime.layout import Layout, decide_detection_layout, decide_task, told_task
from app.runtimes.onnxruntime.metadata import read_metadata
from app.runtimes.onnxruntime.neighbours import read_neighbours
from app.runtimes.onnxruntime.preprocessing import INPUT_DATATYPES, decide_preprocessing, decide_size
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import InferenceError
from tasks.exchange.tensor import TensorSpec
from tasks.task import TaskType

__all__ = ("Inspection", "inspect_model")

_PLATFORM = "onnx"
_CLASSIFIER_LAYOUTS = ("probabilities", "logits")
_SUM_TOLERANCE = 1e-3
_LARGEST_INPUT = 2**30
"""Numbers: four gigabytes. A file that asks for more is damaged or hostile."""


class Inspection(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A model understood, its graph ready to run.

    Attributes:
        description: what is known of it, and how.
        graph: takes pictures.
        labels: names its classes.
        layout: how its outputs are read; its coefficients and classes are those of the outputs.
    """

    description: ModelDescription
    graph: ImageGraph
    labels: Labels
    layout: Layout


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
    spec = _image_input(session, evidence)
    told = told_task(evidence)
    task_type = told[0] if told else None
    listed = listed_labels(evidence)
    classes = None if listed is None else len(listed[0])
    sizing = Facts()
    size = decide_size(spec, evidence, sizing, task_type)
    outputs = _run_blank(session, spec, size, evidence)
    shapes = [output.shape for output in outputs]
    task_type = decide_task(shapes, classes, evidence, facts)
    if task_type is TaskType.IMAGE_CLASSIFICATION:
        layout = _classifier_layout(session, outputs, evidence, facts)
    else:
        layout = decide_detection_layout(shapes, task_type, classes, evidence, facts)
    labels = decide_labels(listed, layout.classes, evidence, facts)
    size = decide_size(spec, evidence, facts, task_type)
    preprocessing = decide_preprocessing(spec, size, task_type, evidence, facts)
    batch = "any number of images at once" if spec.shape[0] == -1 else f"{spec.shape[0]} at once"
    facts.note("batch", batch, Origin.MODEL_FILE)
    facts.note("input datatype", spec.datatype.value, Origin.MODEL_FILE)
    description = ModelDescription(
        task_type=task_type,
        platform=_PLATFORM,
        layout=layout.name,
        labels=labels.names,
        inputs=session.inputs,
        outputs=session.outputs,
        facts=facts.recorded,
    )
    graph = ImageGraph(session, preprocessing)
    return Inspection(description=description, graph=graph, labels=labels, layout=layout)


def _evidence(source: ModelSource, session: Session) -> Evidence:
    return Evidence(
        file=session.file,
        settings=source.settings,
        metadata=read_metadata(session.file, session.metadata),
        neighbours=read_neighbours(source, session.file),
    )


def _image_input(session: Session, evidence: Evidence) -> TensorSpec:
    """The graph's only input, when it is a batch of pictures with the channels first."""
    shown = ", ".join(f"{each.name} {each.datatype} {list(each.shape)}" for each in session.inputs)
    if len(session.inputs) != 1:
        raise evidence.error(f"it takes {len(session.inputs)} inputs ({shown}), but only one image input is supported")
    spec = session.inputs[0]
    if len(spec.shape) != 4 or spec.shape[1] not in (3, -1):
        hint = "; export it with the channels first" if len(spec.shape) == 4 and spec.shape[3] == 3 else ""
        raise evidence.error(f"its input should be images [batch, 3, height, width], but is {shown}{hint}")
    if spec.datatype not in INPUT_DATATYPES:
        known = ", ".join(INPUT_DATATYPES)
        raise evidence.error(f"its input should be of datatype {known}, but is {shown}")
    return spec


def _run_blank(session: Session, spec: TensorSpec, size: tuple[int, int], evidence: Evidence) -> Sequence[NDArray[Any]]:
    """The outputs for a black picture, whose shapes hold for every picture."""
    shape = (max(spec.shape[0], 1), 3, *size)
    if math.prod(shape) > _LARGEST_INPUT:
        raise evidence.error(f"its input {list(shape)} holds more than {_LARGEST_INPUT:,} numbers")
    try:
        return session.run({spec.name: np.zeros(shape, spec.datatype.dtype)})
    except InferenceError as error:
        hint = ""
        if -1 in spec.shape[2:]:
            hint = (
                '; if that size is wrong, declare {"preprocessing": {"size": [height, width]}} in model-settings.json'
            )
        raise ModelError(f"{evidence.file} cannot run on a {size[0]}x{size[1]} image: {error.message}{hint}") from None


def _classifier_layout(session: Session, outputs: Sequence[NDArray[Any]], evidence: Evidence, facts: Facts) -> Layout:
    shapes = [list(output.shape) for output in outputs]
    if len(outputs) != 1 or outputs[0].ndim != 2:
        raise evidence.error(f"a classifier should have one output [batch, classes], but the model has {shapes}")
    declared, name = evidence.settings.layout, session.outputs[0].name.lower()
    if declared is not None and declared not in _CLASSIFIER_LAYOUTS:
        known = " and ".join(_CLASSIFIER_LAYOUTS)
        raise evidence.error(
            f"model-settings.json declares the layout {declared!r}; known for a classifier are {known}"
        )
    exported = "probabilities" if evidence.conventional_task is not None else None
    named = "logits" if "logit" in name else "probabilities" if "prob" in name or "softmax" in name else None
    blank: NDArray[np.float64] = outputs[0].astype(np.float64)
    summed = bool((blank >= 0).all() and (np.abs(blank.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())
    layout = facts.choose(
        "layout",
        (declared, Origin.DECLARED),
        (exported, Origin.MODEL_FILE),
        (named, Origin.MODEL_FILE),
        last=("probabilities" if summed else "logits", Origin.GUESSED),
    )
    return Layout(name=layout, classes=int(outputs[0].shape[1]))
