"""Choose the layout of a graph."""

from app.core.runtimes.onnxruntime.images.preprocessing import PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.classes import CLASSES
from app.core.runtimes.onnxruntime.layouts.layout import GraphView, Layout, Match, format_outputs
from app.core.runtimes.onnxruntime.layouts.pixel_maps import CLASS_MAP, MASK, SEMANTIC
from app.core.runtimes.onnxruntime.layouts.refusal import explain_refusal
from app.core.runtimes.onnxruntime.layouts.yolo import YOLO, YOLOV5, YOLOX
from app.plugins.layouts.detr import DETR, DETR_SIGMOID, RF_DETR
from app.plugins.layouts.faces import ANCHORS, SCRFD, YUNET
from app.plugins.layouts.paddle_ocr import CTC, TEXT_MAP
from app.plugins.layouts.ranked_boxes import RT_DETR, TORCHVISION_BOXES
from metadata.model import Fact, Origin
from tasks.task import TaskType


def _recognise_tensors(view: GraphView) -> Match | None:
    if view.declared_task is not TaskType.TENSOR:
        return None
    count = max(view.inputs.batch, 1)
    return Match(
        layout="tensors",
        task_type=TaskType.TENSOR,
        outputs=view.outputs,
        unbatched=any(output.shape[:1] != (count,) for output in view.outputs),
        # Clients do not know the placement of an image, so that its whole area should fill the input.
        preprocessing=PartialPreprocessing(resize="stretch", origin=Origin.GUESSED),
        facts=(Fact("takes", "images, because preprocessing is declared", Origin.DECLARED),),
    )


_TENSORS = Layout(("tensors",), (TaskType.TENSOR,), "of any shape", _recognise_tensors, ((),))

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
    _TENSORS,
)
"""All families of layouts, in any order."""


def choose_layout(view: GraphView, facts: list[Fact]) -> Match:
    """Choose the layout of a graph, and record it with the model's task.

    Raises:
        ModelError: if no layout or several layouts match. The message explains what to declare.
    """
    (task, task_origin), declared_layout = view.model_files.declared_task(), view.declared_layout
    layouts = [layout for layout in LAYOUTS if task is None or task in layout.task_types]
    layout_names = [name for layout in layouts for name in layout.names]
    if declared_layout is not None and declared_layout not in layout_names:
        raise view.model_files.error(
            f"model-settings.json declares the layout {declared_layout!r}; "
            f"known layouts{f' of {task}' if task else ''} are {', '.join(layout_names)}"
        )
    matches = [
        match
        for layout in LAYOUTS
        if (match := layout.recognise(view)) is not None
        and task in (None, match.task_type)
        and declared_layout in (None, match.layout)
    ]
    match [match for match in matches if match.by_names] or matches:
        case [best]:
            facts.append(Fact("task type", best.task_type.value, best.task_origin if task is None else task_origin))
            origin = best.origin if declared_layout is None else Origin.DECLARED
            facts.append(Fact("layout", f"{best.layout}, outputs {format_outputs(best.outputs)}", origin))
            facts += best.facts
            parameters = view.model_files.settings.parameters
            facts += [
                Fact(name, str(parameters.get(name, value)), Origin.DECLARED if name in parameters else best.origin)
                for name, value in best.parameters.items()
            ]
            if best.keypoints is not None:
                points, numbers = best.keypoints
                origin = Origin.MODEL_FILE if view.model_files.metadata.keypoints else best.origin
                facts.append(Fact("keypoints", f"{points} of {numbers} numbers for each box", origin))
            return best
        case []:
            raise view.model_files.error(explain_refusal(view, task, layouts))
        case several:
            choices = " or ".join(f'{{"layout": "{match.layout}"}} ({match.task_type})' for match in several)
            raise view.model_files.error(
                f"its outputs {format_outputs(view.outputs)} can be read in several ways; declare one of them in "
                f"model-settings.json: {choices}"
            )
