"""Choose the layout of a graph: the match with the highest certainty."""

from app.engine.description import Origin
from app.runtimes.onnxruntime.evidence import Evidence, Facts
from app.runtimes.onnxruntime.layouts.class_map import CLASS_MAP
from app.runtimes.onnxruntime.layouts.classes import CLASSES
from app.runtimes.onnxruntime.layouts.ctc import CTC
from app.runtimes.onnxruntime.layouts.detr import DETR, DETR_SIGMOID
from app.runtimes.onnxruntime.layouts.layout import Match, View, shown
from app.runtimes.onnxruntime.layouts.objectness import YOLOV5, YOLOX
from app.runtimes.onnxruntime.layouts.rf_detr import RF_DETR
from app.runtimes.onnxruntime.layouts.rt_detr import RT_DETR
from app.runtimes.onnxruntime.layouts.semantic import SEMANTIC
from app.runtimes.onnxruntime.layouts.text_map import TEXT_MAP
from app.runtimes.onnxruntime.layouts.yolo import YOLO
from app.settings.model import ModelError
from tasks.task import TaskType

__all__ = ("LAYOUTS", "choose_layout", "told_task")

LAYOUTS = (
    CLASSES,
    YOLO,
    YOLOV5,
    YOLOX,
    RF_DETR,
    RT_DETR,
    DETR,
    DETR_SIGMOID,
    SEMANTIC,
    CLASS_MAP,
    TEXT_MAP,
    CTC,
)
"""All families of layouts, in any order."""

_ARCHITECTURES = {
    "ForImageClassification": TaskType.IMAGE_CLASSIFICATION,
    "ForObjectDetection": TaskType.OBJECT_DETECTION,
    "ForSemanticSegmentation": TaskType.IMAGE_SEGMENTATION,
}
"""Suffixes of the names of transformers' classes."""


def choose_layout(view: View, facts: Facts) -> Match:
    """Choose the layout of a graph, and record it with the model's task.

    Raises:
        ModelError: if no layout or several layouts match. The message explains what to declare.
    """
    told, declared = told_task(view.evidence), view.declared
    known = [name for layout in LAYOUTS if told is None or told[0] in layout.task_types for name in layout.names]
    if declared is not None and declared not in known:
        task = f" of {told[0]}" if told else ""
        raise view.evidence.error(
            f"model-settings.json declares the layout {declared!r}; known layouts{task} are {', '.join(known)}"
        )
    matches = [match for layout in LAYOUTS if (match := layout.recognise(view)) is not None]
    matches = [
        match
        for match in matches
        if (told is None or match.task_type is told[0]) and (declared is None or match.layout == declared)
    ]
    highest = max((match.certainty for match in matches), default=None)
    match [match for match in matches if match.certainty is highest]:
        case [found]:
            _record(found, told, declared, facts)
            return found
        case []:
            raise _no_layout(view, told, declared)
        case several:
            choices = " or ".join(f'{{"layout": "{match.layout}"}} ({match.task_type})' for match in several)
            raise view.evidence.error(
                f"its outputs {shown(view.outputs)} can be read in several ways; declare one of them in "
                f"model-settings.json: {choices}"
            )


def told_task(evidence: Evidence) -> tuple[TaskType, Origin] | None:
    """Return the task that the settings or files declare, with its origin; None if none do.

    Raises:
        ModelError: for an unknown task.
    """
    declared, task = evidence.settings.task_type, evidence.metadata.task
    if declared is not None:
        return declared, Origin.DECLARED
    if evidence.conventional_task is not None:
        return evidence.conventional_task, Origin.MODEL_FILE
    if task is not None:
        raise evidence.error(
            f"its metadata declares the task {task!r}; supported are classify, detect, obb, segment, semantic and pose"
        )
    config = evidence.neighbours.config
    for architecture in (config.architectures or ()) if config else ():
        for ending, task_type in _ARCHITECTURES.items():
            if architecture.endswith(ending):
                return task_type, Origin.CONFIG
        if "For" in architecture:
            endings = ", ".join(f"...{ending}" for ending in _ARCHITECTURES)
            raise evidence.error(
                f"its config.json names the architecture {architecture}; of the architectures in Hugging Face's ONNX "
                f"layout, {endings} are supported"
            )
    return None


def _record(found: Match, told: tuple[TaskType, Origin] | None, declared: str | None, facts: Facts) -> None:
    facts.note("task type", found.task_type.value, told[1] if told else found.task_origin)
    origin = found.origin if declared is None else Origin.DECLARED
    facts.note("layout", f"{found.layout}, outputs {shown(found.outputs)}", origin)
    for fact in found.facts:
        facts.note(fact.topic, fact.value, fact.origin)


def _no_layout(view: View, told: tuple[TaskType, Origin] | None, declared: str | None) -> ModelError:
    outputs = shown(view.outputs)
    if declared is not None:
        return view.evidence.error(
            f"model-settings.json declares the layout {declared!r}, which its outputs {outputs} do not have"
        )
    if told is None:
        return view.evidence.error(
            f"its task cannot be determined from its outputs {outputs}; declare it in model-settings.json, for example "
            f'{{"task_type": "OBJECT_DETECTION"}}, or {{"task_type": "TENSOR"}} to serve the outputs unchanged'
        )
    if told[0] is TaskType.IMAGE_TEXT_TO_TEXT:
        return view.evidence.error(
            f"its outputs {outputs} are not those of a text recogniser, [b, steps, characters] with the characters in "
            f"its metadata or declared as labels; other models of {told[0]} need several .onnx files, and the others "
            f"are missing"
        )
    labels = "" if view.classes is None else f" with {view.classes} labels"
    wanted = "; ".join(
        f"{' and '.join(layout.names)} {layout.wants}" for layout in LAYOUTS if told[0] in layout.task_types
    )
    return view.evidence.error(
        f"its outputs {outputs} are of no known layout of {told[0]}{labels}; known are {wanted}; if it has one of "
        f'them, declare it as "layout" in model-settings.json, and the "labels"'
    )
