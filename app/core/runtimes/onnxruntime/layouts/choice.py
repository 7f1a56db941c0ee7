"""The layouts of core, and the choice among all layouts for a graph."""

from collections.abc import Sequence

from app.core.plugins import registry
from app.core.removed import removed_advice
from app.core.runtimes.onnxruntime.images.preprocessing import PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.classes import CLASSES
from app.core.runtimes.onnxruntime.layouts.layout import GraphView, Layout, Match, format_outputs
from app.core.runtimes.onnxruntime.layouts.yolo import YOLO
from metadata.model import Fact, Origin
from tasks.task import TaskType

_MAX_OUTPUTS = 8


def choose_layout(view: GraphView, facts: list[Fact]) -> Match:
    """Choose the layout of a graph, and record it with the model's task.

    Raise ModelError if no layout or several layouts match. The message explains what to declare.
    """
    (task, task_origin), declared_layout = view.model_files.declared_task(), view.declared_layout
    layouts = [layout for layout in registry().layouts if task is None or task in layout.task_types]
    layout_names = [name for layout in layouts for name in layout.names]
    if declared_layout is not None and declared_layout not in layout_names:
        raise view.model_files.error(
            f"model-settings.json declares the layout {declared_layout!r}; "
            + (
                removed_advice(f"layout {declared_layout}")
                or f"known layouts{f' of {task}' if task else ''} are {', '.join(layout_names)}"
            )
        )
    matches = [
        match
        for layout in registry().layouts
        if (match := layout.recognise(view)) is not None
        and task in (None, match.task_type)
        and declared_layout in (None, match.layout)
    ]
    matches = [match for match in matches if not match.question] or matches
    match [match for match in matches if match.by_names] or matches:
        case [best] if best.question:
            raise view.model_files.error(best.question)
        case [best]:
            facts.append(Fact("task type", str(best.task_type), best.task_origin if task is None else task_origin))
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
            raise view.model_files.error(_rejection(view, task, layouts))
        case several:
            choices = " or ".join(f'{{"layout": "{match.layout}"}} ({match.task_type})' for match in several)
            raise view.model_files.error(
                f"its outputs {format_outputs(view.outputs)} can be read in several ways; declare one of them in "
                f"model-settings.json: {choices}"
            )


def _rejection(view: GraphView, task: TaskType | None, layouts: Sequence[Layout]) -> str:
    """Return why none of `layouts`, all for `task`, reads the outputs, and what to declare."""
    outputs, hidden = format_outputs(view.outputs[:_MAX_OUTPUTS]), len(view.outputs) - _MAX_OUTPUTS
    outputs += f" and {hidden} more" if hidden > 0 else ""
    choice = '; declare {"outputs": ["NAME"]} to read only some of them' if len(view.outputs) > 1 else ""
    if view.declared_layout is not None:
        expected = next(layout.expected_outputs for layout in layouts if view.declared_layout in layout.names)
        return (
            f"model-settings.json declares the layout {view.declared_layout!r}, which its outputs {outputs} do not "
            f"have; that layout has {expected}{choice}"
        )
    if task is None:
        tasks = dict.fromkeys(task for layout in layouts for task in layout.task_types if task is not TaskType.TENSOR)
        reason = (
            f'its task cannot be determined from its outputs {outputs}; declare {{"task_type": "{TaskType.TENSOR}"}} '
            'in model-settings.json to return them unchanged, {"layout": "embedding"} for a vector of each image, '
            f'or one of {", ".join(tasks)} with "labels"{choice}'
        )
    else:
        labels = "" if view.classes is None else f" with {view.classes} labels"
        several = task is TaskType.IMAGE_TEXT_TO_TEXT
        names = ", ".join(name for layout in layouts for name in layout.names)
        reason = (
            f"its outputs {outputs} are of no known layout of {task}{labels}; if it has one of {names}, declare it as "
            f'"layout" in model-settings.json with the "labels"{choice}'
            f"{'; other models of this task need several .onnx files, and the others are missing' if several else ''}"
        )
    return (
        f"{reason}; docs/models.md#onnx lists the layouts; a Python class reads any other outputs, as in "
        "docs/python_models.md#other-outputs"
    )


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


_TENSORS = Layout(("tensors",), (TaskType.TENSOR,), "of any shape", _recognise_tensors)

LAYOUTS = (CLASSES, YOLO, _TENSORS)
"""The families of layouts of core, in any order."""
