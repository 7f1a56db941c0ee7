"""Choose the layout of a graph: the match with the highest certainty."""

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.files.model_files import Facts, ModelFiles
from app.runtimes.onnxruntime.layouts.anchors import ANCHORS
from app.runtimes.onnxruntime.layouts.class_map import CLASS_MAP
from app.runtimes.onnxruntime.layouts.classes import CLASSES
from app.runtimes.onnxruntime.layouts.ctc import CTC
from app.runtimes.onnxruntime.layouts.detr import DETR, DETR_SIGMOID
from app.runtimes.onnxruntime.layouts.faces import SCRFD, YUNET
from app.runtimes.onnxruntime.layouts.layout import GraphView, Match, format_outputs
from app.runtimes.onnxruntime.layouts.mask import MASK
from app.runtimes.onnxruntime.layouts.objectness import YOLOV5, YOLOX
from app.runtimes.onnxruntime.layouts.rf_detr import RF_DETR
from app.runtimes.onnxruntime.layouts.rt_detr import RT_DETR
from app.runtimes.onnxruntime.layouts.semantic import SEMANTIC
from app.runtimes.onnxruntime.layouts.tensors import TENSORS
from app.runtimes.onnxruntime.layouts.text_map import TEXT_MAP
from app.runtimes.onnxruntime.layouts.torchvision_boxes import TORCHVISION_BOXES
from app.runtimes.onnxruntime.layouts.yolo import YOLO
from app.settings.model import ModelError
from tasks.task import TaskType

__all__ = ("LAYOUTS", "choose_layout", "declared_task")

LAYOUTS = (
    CLASSES,
    YOLO,
    YOLOV5,
    YOLOX,
    RF_DETR,
    RT_DETR,
    DETR,
    DETR_SIGMOID,
    TORCHVISION_BOXES,
    YUNET,
    SCRFD,
    ANCHORS,
    SEMANTIC,
    MASK,
    CLASS_MAP,
    TEXT_MAP,
    CTC,
    TENSORS,
)
"""All families of layouts, in any order."""

_ARCHITECTURES = {
    "ForImageClassification": TaskType.IMAGE_CLASSIFICATION,
    "ForObjectDetection": TaskType.OBJECT_DETECTION,
    "ForSemanticSegmentation": TaskType.IMAGE_SEGMENTATION,
}
"""Suffixes of the names of transformers' classes."""


_WAYS_ON = (
    "docs/model_formats.md#onnx lists the layouts; a Python class can decode any other outputs: "
    "docs/python_models.md#other-outputs"
)


def choose_layout(view: GraphView, facts: Facts) -> Match:
    """Choose the layout of a graph, and record it with the model's task.

    Raises:
        ModelError: if no layout or several layouts match. The message explains what to declare.
    """
    task_and_origin, declared_layout = declared_task(view.model_files), view.declared_layout
    layout_names = [
        name
        for layout in LAYOUTS
        if task_and_origin is None or task_and_origin[0] in layout.task_types
        for name in layout.names
    ]
    if declared_layout is not None and declared_layout not in layout_names:
        task = f" of {task_and_origin[0]}" if task_and_origin else ""
        raise view.model_files.error(
            f"model-settings.json declares the layout {declared_layout!r}; "
            f"known layouts{task} are {', '.join(layout_names)}"
        )
    matches = [match for layout in LAYOUTS if (match := layout.recognise(view)) is not None]
    matches = [
        match
        for match in matches
        if (task_and_origin is None or match.task_type is task_and_origin[0])
        and (declared_layout is None or match.layout == declared_layout)
    ]
    highest = max((match.certainty for match in matches), default=None)
    match [match for match in matches if match.certainty is highest]:
        case [best]:
            _record(best, task_and_origin, declared_layout, facts)
            return best
        case []:
            raise _no_layout(view, task_and_origin, declared_layout)
        case several:
            choices = " or ".join(f'{{"layout": "{match.layout}"}} ({match.task_type})' for match in several)
            raise view.model_files.error(
                f"its outputs {format_outputs(view.outputs)} can be read in several ways; declare one of them in "
                f"model-settings.json: {choices}"
            )


def declared_task(model_files: ModelFiles) -> tuple[TaskType, Origin] | None:
    """Return the task that the settings or files declare, with its origin; None if none do.

    Raises:
        ModelError: for an unknown task.
    """
    declared, task = model_files.settings.task_type, model_files.metadata.task
    if declared is not None:
        return declared, Origin.DECLARED
    if model_files.ultralytics_task is not None:
        return model_files.ultralytics_task, Origin.MODEL_FILE
    if task is not None:
        raise model_files.error(
            f"its metadata declares the task {task!r}; supported are classify, detect, obb, segment, semantic and pose"
        )
    config = model_files.hugging_face.config
    for architecture in (config.architectures or ()) if config else ():
        for ending, task_type in _ARCHITECTURES.items():
            if architecture.endswith(ending):
                return task_type, Origin.CONFIG
        if "For" in architecture:
            endings = ", ".join(f"...{ending}" for ending in _ARCHITECTURES)
            raise model_files.error(
                f"its config.json names the architecture {architecture}; of the architectures in Hugging Face's ONNX "
                f"layout, {endings} are supported"
            )
    return None


def _record(
    match: Match, task_and_origin: tuple[TaskType, Origin] | None, declared_layout: str | None, facts: Facts
) -> None:
    facts.note("task type", match.task_type.value, task_and_origin[1] if task_and_origin else match.task_origin)
    origin = match.origin if declared_layout is None else Origin.DECLARED
    facts.note("layout", f"{match.layout}, outputs {format_outputs(match.outputs)}", origin)
    for fact in match.facts:
        facts.note(fact.topic, fact.value, fact.origin)


def _no_layout(
    view: GraphView, task_and_origin: tuple[TaskType, Origin] | None, declared_layout: str | None
) -> ModelError:
    outputs = format_outputs(view.outputs)
    if declared_layout is not None:
        return view.model_files.error(
            f"model-settings.json declares the layout {declared_layout!r}, which its outputs {outputs} do not have"
        )
    if task_and_origin is None:
        return view.model_files.error(
            f"its task cannot be determined from its outputs {outputs}; declare it in model-settings.json, for example "
            f'{{"task_type": "OBJECT_DETECTION"}}, or {{"task_type": "TENSOR"}} to serve the outputs unchanged, with '
            f'"preprocessing" if clients send images; '
            f"{_WAYS_ON}"
        )
    if task_and_origin[0] is TaskType.IMAGE_TEXT_TO_TEXT:
        return view.model_files.error(
            f"its outputs {outputs} are not those of a text recogniser, [b, steps, characters] with the characters in "
            f"its metadata or declared as labels; other models of {task_and_origin[0]} need several .onnx files, "
            f"and the others are missing"
        )
    labels = "" if view.classes is None else f" with {view.classes} labels"
    expected = "; ".join(
        f"{' and '.join(layout.names)} {layout.expected_outputs}"
        for layout in LAYOUTS
        if task_and_origin[0] in layout.task_types
    )
    return view.model_files.error(
        f"its outputs {outputs} are of no known layout of {task_and_origin[0]}{labels}; known are {expected}; "
        f'if it has one of them, declare it as "layout" in model-settings.json, and the "labels"; {_WAYS_ON}'
    )
