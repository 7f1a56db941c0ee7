"""What the numbers in a graph's outputs mean, told from their shapes first.

The layouts are those of Ultralytics' ONNX exports (``ultralytics/engine/exporter.py``, "output0" and "output1"), and of
image classifiers of any origin. In what follows b is the batch, nc the number of classes, N the number of candidates,
M the number of detections a graph gives at most, nm the number of mask coefficients.
"""

from collections.abc import Sequence

import msgspec

from app.engine.description import Origin
from app.runtimes.onnxruntime.evidence import Evidence, Facts
from app.settings.model import ModelError
from tasks.task import TaskType

__all__ = ("LAYOUTS", "Layout", "decide_detection_layout", "decide_task", "told_task")

LAYOUTS = (
    "probabilities",  # classification [b, nc], each 0..1
    "logits",  # classification [b, nc], softmax still to be applied
    "raw",  # detect [b, 4 + nc, N], obb [b, 4 + nc + 1, N], segment [b, 4 + nc + nm, N]; boxes cx, cy, w, h; no NMS yet
    "raw-transposed",  # the same with the last two dimensions exchanged
    "nms",  # detect [b, M, 6] xyxy, score, class; obb [b, M, 7] cx, cy, w, h, score, class, r; segment [b, M, 6 + nm]
    "end2end",  # the same rows, from a network that needs no NMS
)
"""Every name that ``layout`` in model-settings.json may have."""

_MANY = 1000
"""More rows than this are candidates rather than detections."""

_BOX = 4
_DETECTION = 6
_DETECTION_TASKS = (TaskType.OBJECT_DETECTION, TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How the outputs of a detector, oriented detector or segmenter are read.

    Attributes:
        name: one of `LAYOUTS`.
        classes: nc, or None where the rows name a class each and its number is not in the shapes.
        coefficients: nm, 0 without masks.
    """

    name: str
    classes: int | None
    coefficients: int = 0

    @property
    def suppressed(self) -> bool:
        """Whether duplicates have been removed inside the graph."""
        return self.name in ("nms", "end2end")

    @property
    def transposed(self) -> bool:
        """Whether candidates are rows rather than columns."""
        return self.name == "raw-transposed"


def decide_task(shapes: Sequence[tuple[int, ...]], classes: int | None, evidence: Evidence, facts: Facts) -> TaskType:
    """What the model does, from its files or, when they do not say, from the shapes of its outputs.

    Args:
        shapes: measured on a blank picture, in the order of the outputs.
        classes: how many labels the files list, None when they list none.
        evidence: the model's files.
        facts: where the decision is recorded.

    Raises:
        ModelError: for outputs of no known layout, saying what to declare.
    """
    told = told_task(evidence)
    if told is not None:
        facts.note("task type", told[0].value, told[1])
        return told[0]
    task_type, origin = None, Origin.SHAPES
    ranks = [len(shape) for shape in shapes]
    if ranks == [2]:
        task_type = TaskType.IMAGE_CLASSIFICATION
    elif ranks == [3, 4]:
        task_type = TaskType.IMAGE_SEGMENTATION
    elif ranks == [3]:
        _, rows, columns = shapes[0]
        known, rotated = _is_rotated(rows, columns, classes, evidence.settings.layout)
        task_type = TaskType.ORIENTED_OBJECT_DETECTION if rotated else TaskType.OBJECT_DETECTION
        origin = Origin.SHAPES if known else Origin.GUESSED
    if task_type is None:
        raise evidence.error(
            f"what it does cannot be told from its outputs {_shown(shapes)}; declare it in model-settings.json, "
            f'for example {{"task_type": "OBJECT_DETECTION"}}'
        )
    facts.note("task type", task_type.value, origin)
    return task_type


def told_task(evidence: Evidence) -> tuple[TaskType, Origin] | None:
    """What the model does, where its files say so.

    Raises:
        ModelError: for a task of no known task type.
    """
    declared, task = evidence.settings.task_type, evidence.metadata.task
    if declared is not None:
        if declared is not TaskType.IMAGE_CLASSIFICATION and declared not in _DETECTION_TASKS:
            raise evidence.error(f"{declared} takes more than one .onnx file, and the others are not beside it")
        return declared, Origin.DECLARED
    if evidence.conventional_task is not None:
        return evidence.conventional_task, Origin.MODEL_FILE
    if task is not None:
        raise evidence.error(
            f"its metadata says that its task is {task!r}; known are classify, detect, obb and segment"
        )
    config = evidence.neighbours.config
    for architecture in (config.architectures or ()) if config else ():
        if architecture.endswith("ForImageClassification"):
            return TaskType.IMAGE_CLASSIFICATION, Origin.CONFIG
        if "For" in architecture:
            raise evidence.error(
                f"config.json beside it names the architecture {architecture}; of those exported to ONNX in Hugging "
                f"Face's layout only image classifiers are known so far"
            )
    return None


def _is_rotated(rows: int, columns: int, classes: int | None, declared: str | None) -> tuple[bool, bool]:
    """Whether boxes have an angle can be known, and whether they have one."""
    if columns in (_DETECTION, _DETECTION + 1) and declared in (None, "nms", "end2end"):
        counted = classes is not None and _BOX + classes == columns
        if declared is not None or rows <= _MANY or (rows > columns and not counted):
            return True, columns == _DETECTION + 1
    channels = columns if declared == "raw-transposed" or rows > columns else rows
    if classes is None:
        return False, False
    return channels in (_BOX + classes, _BOX + classes + 1), channels == _BOX + classes + 1


def decide_detection_layout(
    shapes: Sequence[tuple[int, ...]], task_type: TaskType, classes: int | None, evidence: Evidence, facts: Facts
) -> Layout:
    """How the outputs of a detector, oriented detector or segmenter are to be read.

    Args:
        shapes: measured on a blank picture, in the order of the outputs.
        task_type: not IMAGE_CLASSIFICATION.
        classes: how many labels the files list, None when they list none.
        evidence: the model's files.
        facts: where the decision is recorded.

    Raises:
        ModelError: for shapes that are of no layout, or of another number of classes than there are labels.
    """
    masks = task_type is TaskType.IMAGE_SEGMENTATION
    if [len(shape) for shape in shapes] != ([3, 4] if masks else [3]):
        wanted = "[b, rows, columns] and [b, coefficients, height, width]" if masks else "one, [b, rows, columns]"
        raise evidence.error(f"{task_type} takes outputs {wanted}, but the model has {_shown(shapes)}")
    coefficients = shapes[1][1] if masks else 0
    extra = coefficients + (task_type is TaskType.ORIENTED_OBJECT_DETECTION)
    _, rows, columns = shapes[0]
    name, origin = _declared(evidence, rows, columns, extra) or _read(rows, columns, extra, classes, evidence)
    counted = None if name in ("nms", "end2end") else (columns if name == "raw-transposed" else rows) - _BOX - extra
    if counted is not None and classes is not None and counted != classes:
        raise _mismatch(shapes, counted, classes, evidence)
    facts.note("layout", f"{name}, outputs {_shown(shapes)}", origin)
    return Layout(name=name, classes=counted, coefficients=coefficients)


def _declared(evidence: Evidence, rows: int, columns: int, extra: int) -> tuple[str, Origin] | None:
    name = evidence.settings.layout
    if name is None:
        return None
    if name not in LAYOUTS[2:]:
        raise evidence.error(
            f"model-settings.json declares the layout {name!r}; known for this task are {', '.join(LAYOUTS[2:])}"
        )
    width = rows if name == "raw" else columns
    fits = width > _BOX + extra if name.startswith("raw") else width == _DETECTION + extra
    if not fits:
        raise evidence.error(
            f"model-settings.json declares the layout {name!r}, which output [b, {rows}, {columns}] does not have"
        )
    return name, Origin.DECLARED


def _read(rows: int, columns: int, extra: int, classes: int | None, evidence: Evidence) -> tuple[str, Origin]:
    channels = None if classes is None else _BOX + classes + extra
    suppressed = evidence.metadata.suppressed or evidence.metadata.end_to_end
    if columns == _DETECTION + extra and rows != channels and (suppressed or columns != channels or rows <= _MANY):
        return "end2end" if evidence.metadata.end_to_end else "nms", Origin.SHAPES
    if rows == channels:
        return "raw", Origin.SHAPES
    if columns == channels:
        return "raw-transposed", Origin.SHAPES
    if _BOX + extra < rows < columns:
        return "raw", Origin.SHAPES
    raise evidence.error(
        f"its output [b, {rows}, {columns}] is of no known layout"
        f'{"" if classes is None else f" with {classes} labels"}; declare "layout" and "labels" in '
        f"model-settings.json, where layout is one of {', '.join(LAYOUTS[2:])}"
    )


def _mismatch(shapes: Sequence[tuple[int, ...]], counted: int, classes: int, evidence: Evidence) -> ModelError:
    hint = "; a score of objectness beside those of the classes is not supported" if counted == classes + 1 else ""
    return evidence.error(f"its outputs {_shown(shapes)} hold {counted} classes, but {classes} labels are given{hint}")


def _shown(shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join(str(list(shape)) for shape in shapes)
