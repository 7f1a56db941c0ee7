"""Decode Ultralytics' ONNX exports (``ultralytics/engine/exporter.py``, "output0" and "output1").

- ``raw``: detect [b, 4 + nc, N], obb [b, 4 + nc + 1, N], segment [b, 4 + nc + nm, N] and prototypes [b, nm, h, w], pose
  [b, 4 + nc + keypoints, N]; boxes cx, cy, w, h in input pixels; no suppression yet.
- ``raw-transposed``: the same with the last two dimensions swapped.
- ``nms``: detect [b, M, 6] xyxy, score, class; obb [b, M, 7] cx, cy, w, h, score, class, r; segment [b, M, 6 + nm] and
  prototypes.
- ``end2end``: the rows of ``nms``, from a network that needs no suppression.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.layouts.candidates import (
    BOX_VALUES,
    DETECTION_VALUES,
    FindObjects,
    find_candidates,
    read_suppressed,
)
from app.core.runtimes.onnxruntime.layouts.layout import (
    GraphView,
    Layout,
    Match,
    RawSegments,
    is_map_or_features,
    takes_text_lines,
)
from app.core.runtimes.onnxruntime.mask_grid import MaskGrid
from metadata.model import Fact, Origin
from tasks.image_segmentation import SegmentationInput
from tasks.task import TaskType
from tasks.vision.filtering import clip_boxes

MAX_DETECTION_ROWS = 1000
"""An output with more rows contains candidates rather than detections."""

_RAW, _TRANSPOSED, _NMS, _END2END = _NAMES = ("raw", "raw-transposed", "nms", "end2end")
_SUPPRESSED = (_NMS, _END2END)
_TASKS = (TaskType.OBJECT_DETECTION, TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION)

STRIDES = ((8, 16, 32), (8, 16, 32, 64))
"""Pixels between the cells of each grid, for models with three or four grids."""
_ANCHORS = 3
"""Candidates of each cell in YOLOv5 and YOLOv7; later YOLOs have one."""
_MIN_RATIO = 32
"""Candidates of grids with other strides for each of their values. Tokens of text encoders have more values."""


def _recognise(view: GraphView) -> Match | None:
    ranks = [output.blank.ndim for output in view.outputs]
    if ranks not in ([3], [3, 4]) or not all(output.is_float for output in view.outputs):
        return None
    masks = ranks == [3, 4]
    if masks and not view.outputs[1].blank.size:
        return None
    if view.declared_task is not None and (
        view.declared_task not in _TASKS or (view.declared_task is TaskType.IMAGE_SEGMENTATION) != masks
    ):
        return None
    _, rows, columns = view.outputs[0].shape
    origin, task_type = Origin.SHAPES, TaskType.IMAGE_SEGMENTATION
    if not masks:
        is_certain, oriented = _has_angle(rows, columns, view)
        guess = TaskType.ORIENTED_OBJECT_DETECTION if oriented else TaskType.OBJECT_DETECTION
        origin, task_type = Origin.SHAPES if is_certain else Origin.GUESSED, view.declared_task or guess
    keypoints = view.model_files.metadata.keypoints if task_type is TaskType.OBJECT_DETECTION else None
    oriented = task_type is TaskType.ORIENTED_OBJECT_DETECTION
    extra = view.outputs[1].shape[1] if masks else 1 if oriented else math.prod(keypoints or (0,))
    name = _layout(rows, columns, extra, view)
    if name is None:
        return None
    classes, find = None, partial(read_suppressed, oriented=oriented)
    facts: list[Fact] = []
    if name not in _SUPPRESSED:
        transposed = name == _TRANSPOSED
        blank = view.outputs[0].blank
        boxes: NDArray[Any] = blank[..., :BOX_VALUES] if transposed else blank[:, :BOX_VALUES]
        if 0 < np.abs(boxes).max(initial=0) <= 1:
            unit = "all within the first pixel, so probably fractions of the input; a Python class can multiply them"
            facts.append(Fact("boxes", unit, Origin.GUESSED))
        classes = (columns if transposed else rows) - BOX_VALUES - extra
        find = partial(find_candidates, classes=classes, transposed=transposed, oriented=oriented)
    if name == _NMS and view.declared_layout is None and _counts_from_one(view):
        return None
    is_guess = name == _NMS and view.declared_layout is None and not _shows_detections(view)
    if is_guess and oriented and view.declared_task is None:
        # Seven columns may also be the number of the image, a box, a class and a score.
        return None
    return Match(
        layout=name,
        task_type=task_type,
        outputs=view.outputs,
        decode=partial(_outline, find=find) if masks else find,
        keypoints=keypoints,
        origin=Origin.GUESSED if is_guess else Origin.SHAPES,
        task_origin=Origin.GUESSED if is_guess else origin,
        classes=classes,
        facts=facts,
    )


def _shows_detections(view: GraphView) -> bool:
    """Return whether the exporter says that rows are detections, or a detection in the black image does."""
    metadata = view.model_files.metadata
    return metadata.task is not None or metadata.suppressed or bool((view.outputs[0].blank[..., BOX_VALUES] > 0).any())


def _counts_from_one(view: GraphView) -> bool:
    """Return whether the highest class number for the black image is the number of labels, as if they began with 1."""
    numbers: NDArray[Any] = view.outputs[0].blank[..., BOX_VALUES + 1]
    return view.classes is not None and bool(numbers.max(initial=0) == view.classes)


def candidate_counts(view: GraphView) -> tuple[set[int], set[int]]:
    """Return the possible numbers of candidates of grids over the input: with one and with several for each cell."""
    height, width = view.size
    cells = {sum((height // stride) * (width // stride) for stride in strides) for strides in STRIDES} - {0}
    return cells, {_ANCHORS * number for number in cells}


def are_candidates(count: int, values: int, view: GraphView) -> bool:
    """Return whether `count` rows or columns of `values` numbers can be the candidates of a detector."""
    return any(count in counts for counts in candidate_counts(view)) or count >= _MIN_RATIO * values


def _may_be_suppressed(view: GraphView) -> bool:
    """Return whether rows can be detections: the exporter says so, or neither their number nor values contradict it."""
    metadata, count = view.model_files.metadata, view.outputs[0].shape[1]
    if metadata.suppressed or metadata.end_to_end:
        return True
    if any(count in counts for counts in candidate_counts(view)):
        return False
    # The columns for scores and classes hold such values; some graphs fill unused rows with -1.
    rows = view.outputs[0].blank[..., BOX_VALUES:DETECTION_VALUES].reshape(-1, 2)
    scores, numbers = rows[np.isfinite(rows).all(axis=1)].T
    return bool(((scores <= 1) & (numbers == np.floor(numbers))).all())


def _has_angle(rows: int, columns: int, view: GraphView) -> tuple[bool, bool]:
    """Return whether the shape decides the kind of boxes, and whether they are oriented."""
    is_declared = view.declared_layout in _SUPPRESSED
    if columns in (DETECTION_VALUES, DETECTION_VALUES + 1) and (
        is_declared or (view.declared_layout is None and _may_be_suppressed(view))
    ):
        counted = view.classes is not None and BOX_VALUES + view.classes == columns
        if is_declared or rows <= MAX_DETECTION_ROWS or (rows > columns and not counted):
            return True, columns == DETECTION_VALUES + 1
    channels = columns if view.declared_layout == _TRANSPOSED or rows > columns else rows
    if view.classes is None:
        return False, False
    further = channels - BOX_VALUES - view.classes
    return further in (0, 1), further == 1


def _layout(rows: int, columns: int, extra: int, view: GraphView) -> str | None:
    """Return the layout as declared or as the shape shows; None if the shape does not match."""
    name = view.declared_layout
    if name is not None:
        width = rows if name == _RAW else columns
        fits = width > BOX_VALUES + extra if name in (_RAW, _TRANSPOSED) else width == DETECTION_VALUES + extra
        return name if name in _NAMES and fits else None
    channels = None if view.classes is None else BOX_VALUES + view.classes + extra
    metadata = view.model_files.metadata
    suppressed = metadata.suppressed or metadata.end_to_end
    if (
        columns == DETECTION_VALUES + extra
        and rows != channels
        and (suppressed or columns != channels or rows <= MAX_DETECTION_ROWS)
        and _may_be_suppressed(view)
    ):
        return _END2END if metadata.end_to_end else _NMS
    if rows == channels:
        return _RAW
    cells, anchors = candidate_counts(view)
    # YOLOv5 has several candidates for each cell.
    if columns == channels and rows not in anchors:
        return _TRANSPOSED
    detections = (DETECTION_VALUES, DETECTION_VALUES + 1, DETECTION_VALUES + extra)
    if channels is None and columns in detections and rows in cells:
        return _TRANSPOSED
    is_guess = view.declared_task is None and view.classes is None
    # Text recognisers, depth maps and hidden states have outputs of this rank, too.
    if is_guess and (
        takes_text_lines(view.inputs)
        or is_map_or_features(view.outputs[0], view.inputs)
        or not are_candidates(columns, rows, view)
    ):
        return None
    return _RAW if BOX_VALUES + extra < rows < columns else None


def _outline(answer: RawOutputs, item: SegmentationInput, *, find: FindObjects) -> RawSegments:
    """Combine prototype masks with the coefficients of each object (YOLACT), limited to its box."""
    candidates = find(answer, item)
    prototypes: NDArray[np.float32] = answer.outputs[1]
    grid = MaskGrid(prototypes, answer)
    boxes = clip_boxes(answer.placement.boxes_to_image(candidates.boxes), item.image.width, item.image.height)
    contours = [
        grid.prototype_contours(coefficients, box) for coefficients, box in zip(candidates.extras, boxes, strict=True)
    ]
    return RawSegments(class_ids=candidates.class_ids, scores=candidates.scores, contours=contours)


YOLO = Layout(
    _NAMES,
    _TASKS,
    "[b, 4 + nc, N], [b, N, 4 + nc] or [b, M, 6], and prototypes [b, nm, h, w] for masks",
    _recognise,
)
