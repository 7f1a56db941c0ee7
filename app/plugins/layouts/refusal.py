"""Explain why no layout matches a graph: the likely task, at most three likely layouts, and what to declare."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from app.core.runtimes.onnxruntime.layouts.layout import (
    GraphView,
    Layout,
    Output,
    are_probabilities,
    format_outputs,
    is_map_or_features,
    takes_text_lines,
)
from app.core.runtimes.onnxruntime.layouts.yolo import are_candidates
from app.plugins.layouts.pixel_maps import covers_image, likely_mask, planes_first
from tasks.task import TaskType

_FAR = 1000
"""Distance of a layout that does not say what ranks its outputs have."""
_MAX_LAYOUTS = 3
_MAX_OUTPUTS = 8

_MAX_STRIDE = 8
"""Input pixels for each cell of the class scores of segmenters. Coarser maps are features."""
_POINTS = re.compile(r"heat|landmark|(^|[._/])(hm|kpts?|keypoints?|pafs?|pose|wh|reg|offsets?)([._/:\d]|$)")
"""Names, in lower case, of outputs from which keypoints or the centres of objects are computed."""
_BOX_WIDTHS = range(4, 8)
"""Columns of rows with one box, and maybe a score, a class and an angle."""
RECIPE_TASKS = (
    TaskType.IMAGE_CLASSIFICATION,
    TaskType.OBJECT_DETECTION,
    TaskType.ORIENTED_OBJECT_DETECTION,
    TaskType.IMAGE_SEGMENTATION,
)
"""Tasks of ``charioteer init --from onnx``, whose starter is a `GraphModel`."""

_CHOICES: Mapping[TaskType, str] = {
    TaskType.IMAGE_TEXT_TO_TEXT: '{"layout": "ctc"} with the characters as "labels" for text in images',
    TaskType.OBJECT_DETECTION: '{"task_type": "OBJECT_DETECTION"} with "labels" and the "layout"',
    TaskType.ORIENTED_OBJECT_DETECTION: '{"task_type": "ORIENTED_OBJECT_DETECTION", "layout": "nms"} with "labels" for '
    "rows of a box, a score, a class and an angle",
    TaskType.IMAGE_SEGMENTATION: '{"task_type": "IMAGE_SEGMENTATION"} for masks or classes of pixels',
    TaskType.IMAGE_CLASSIFICATION: '{"task_type": "IMAGE_CLASSIFICATION"} with "labels" for scores of classes',
    TaskType.TENSOR: '{"task_type": "TENSOR"} to return them unchanged, as for embeddings, heat maps, points, '
    'measurements and depth maps, with "preprocessing" if clients send images',
}


def explain_rejection(view: GraphView, task: TaskType | None, layouts: Sequence[Layout]) -> str:
    """Return why none of `layouts`, those of `task`, matches, and what to declare."""
    outputs, hidden = format_outputs(view.outputs[:_MAX_OUTPUTS]), len(view.outputs) - _MAX_OUTPUTS
    outputs += f" and {hidden} more" if hidden > 0 else ""
    likely, output = _likely_task(view)
    is_probable = output is None or _is_probable(likely, output, view)
    choose = ""
    if output is not None and len(view.outputs) > 1 and (is_probable or task is not None or view.declared_layout):
        choose = f'declare the outputs to read, such as {{"outputs": ["{output.name}"]}}, in model-settings.json; '
    if view.declared_layout is not None:
        expected = next(layout.expected_outputs for layout in layouts if view.declared_layout in layout.names)
        return (
            f"model-settings.json declares the layout {view.declared_layout!r}, which its outputs {outputs} do not "
            f"have; {choose}that layout has {expected}"
        )
    if task is None:
        choices = [_CHOICES[likely], *([] if likely is TaskType.TENSOR else [_CHOICES[TaskType.TENSOR]])]
        if not is_probable and len(view.outputs) > 1:
            choices[0] += ', and {"outputs": ["NAME"]} for the one to read'
        return (
            f"its task cannot be determined from its outputs {outputs}; {choose}declare the task in "
            f"model-settings.json{', probably' if is_probable else ':'} {', or '.join(choices)}; "
            f"{_ways_on(view, likely if is_probable else None)}"
        )
    if task is TaskType.IMAGE_TEXT_TO_TEXT:
        return (
            f"its outputs {outputs} are not those of a text recogniser, [b, steps, characters] with the characters in "
            f'its metadata or declared as labels; "ctc" in model-settings.json declares another axis of the steps; '
            f"other models of {task} need several .onnx files, "
            f"and the others are missing"
        )
    labels = "" if view.classes is None else f" with {view.classes} labels"
    nearest = sorted(layouts, key=lambda layout: _distance(layout, view))[:_MAX_LAYOUTS]
    expected = "; ".join(f"{' and '.join(layout.names)} {layout.expected_outputs}" for layout in nearest)
    is_other = is_probable and likely not in (task, TaskType.TENSOR)
    other = f"they look like those of {likely}: declare {_CHOICES[likely]}; " if is_other else ""
    return (
        f"its outputs {outputs} are of no known layout of {task}{labels}; {choose}{other}similar layouts of {task} are "
        f'{expected}; if it has one of them, declare it as "layout" in model-settings.json, and the "labels"; '
        f"{_ways_on(view, task)}"
    )


def _ways_on(view: GraphView, task: TaskType | None) -> str:
    """Return where the layouts are, and how to write a class for a task; None for one that the user must choose."""
    recipe = "a Python class can decode any other outputs: "
    if task is None or task in RECIPE_TASKS:
        file = shlex.quote(str(view.model_files.file))
        recipe += f"`charioteer init NAME --from onnx --task {task or 'TASK'} --file {file}` writes a starter, see "
    return f"docs/models.md#onnx lists the layouts; {recipe}docs/python_models.md#other-outputs"


def _distance(layout: Layout, view: GraphView) -> int:
    """Return how many outputs a graph has too many or too few for a layout, counted by their ranks."""
    found = Counter(output.blank.ndim for output in view.outputs)
    distances = (((found - Counter(ranks)) + (Counter(ranks) - found)).total() for ranks in layout.ranks)
    return min(distances, default=_FAR)


def _likely_task(view: GraphView) -> tuple[TaskType, Output | None]:
    """Return the task that the outputs may be of, and the output to read if one is enough."""
    candidates = [output for output in view.outputs if output.blank.size] or view.outputs
    tasks = [(_task_of(output, view), output) for output in candidates]
    if {task for task, _ in tasks} == {TaskType.TENSOR, TaskType.IMAGE_CLASSIFICATION}:
        # A number beside a map is a measurement, not a score.
        return TaskType.TENSOR, None
    for task in [task for task in _CHOICES if task is not TaskType.TENSOR]:
        matching = [output for found, output in tasks if found is task]
        if matching:
            if task is TaskType.OBJECT_DETECTION:
                return task, None
            mask = likely_mask(view, matching) if task is TaskType.IMAGE_SEGMENTATION else None
            return task, mask or max(matching, key=lambda output: output.blank.size)
    return TaskType.TENSOR, None


def _is_probable(task: TaskType, output: Output, view: GraphView) -> bool:
    """Return whether labels or values of an output show its task: maps and vectors of numbers may be anything."""
    if task in (TaskType.IMAGE_CLASSIFICATION, TaskType.ORIENTED_OBJECT_DETECTION):
        return False
    if task is not TaskType.IMAGE_SEGMENTATION or not output.is_float:
        return True
    planes, rows = planes_first(output, view.inputs).shape[1:3]
    if planes > 1:
        return view.classes == planes or are_probabilities(planes_first(output, view.inputs).blank)
    # Heat maps are smaller than the image.
    return rows == view.size[0] and bool(((output.blank >= 0) & (output.blank <= 1)).all())


def _task_of(output: Output, view: GraphView) -> TaskType:
    shape = planes_first(output, view.inputs).shape
    if not output.blank.size or is_map_or_features(output, view.inputs) or _POINTS.search(output.name.lower()):
        return TaskType.TENSOR
    match len(shape):
        case 4:
            return _task_of_map(shape, view)
        case 3 if not output.is_float and covers_image(output, view):
            return TaskType.IMAGE_SEGMENTATION
        case 3:
            return _task_of_rows(shape, view)
        case 2 if shape[1] in _BOX_WIDTHS and shape[0] != max(view.inputs.batch, 1):
            return TaskType.OBJECT_DETECTION
        case 2 if output.is_float:
            return TaskType.IMAGE_CLASSIFICATION
        case _:
            return TaskType.TENSOR


def _task_of_map(shape: tuple[int, ...], view: GraphView) -> TaskType:
    (_, channels, rows, _), height = shape, view.inputs.sides[0]
    is_other = height != -1 and (rows * _MAX_STRIDE < height or (channels == 3 and rows >= height))
    # Others are features, or another image.
    return TaskType.TENSOR if is_other else TaskType.IMAGE_SEGMENTATION


def _task_of_rows(shape: tuple[int, ...], view: GraphView) -> TaskType:
    if takes_text_lines(view.inputs):
        return TaskType.IMAGE_TEXT_TO_TEXT
    if shape[2] == max(_BOX_WIDTHS):
        return TaskType.ORIENTED_OBJECT_DETECTION
    rows, columns = max(shape[1:]), min(shape[1:])
    is_detector = columns > min(_BOX_WIDTHS) and are_candidates(rows, columns, view)
    return TaskType.OBJECT_DETECTION if is_detector or shape[2] in _BOX_WIDTHS else TaskType.TENSOR


EXPLANATIONS = (explain_rejection,)
