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

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.layouts.layout import (
    BoxDecoder,
    Candidates,
    GraphView,
    Layout,
    MaskDecoder,
    Match,
    OrientedBoxDecoder,
    Outline,
    OutputDecoder,
    best_indices,
    keypoints_fact,
)
from app.runtimes.onnxruntime.mask_grid import MaskGrid
from tasks.image_segmentation import SegmentationInput
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType
from tasks.vision.filtering import clip_boxes, suppress_boxes, suppress_rotated_boxes, xywh_to_xyxy

BOX = 4
"""Values of a box."""

MAX_DETECTION_ROWS = 1000
"""An output with more rows contains candidates rather than detections."""

_MAX_CANDIDATES = 30_000
"""Ultralytics' limit for suppression."""

_RAW, _TRANSPOSED, _NMS, _END2END = _NAMES = ("raw", "raw-transposed", "nms", "end2end")
_SUPPRESSED = (_NMS, _END2END)
_TASKS = (TaskType.OBJECT_DETECTION, TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION)

_DETECTION = 6
"""Columns of a suppressed row: box, score, class."""

_MAX_ORIENTED = 2000
"""Candidates. Overlaps of oriented boxes are computed one by one, so more would take seconds."""


class RowFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The format of one output.

    Attributes:
        suppressed: whether the graph includes non-maximum suppression; a row is then a box, a score and a class.
        transposed: whether unsuppressed candidates are rows rather than columns.
        classes: nc, or None if each row contains a class number.
        objectness: whether an objectness score follows the box.
    """

    suppressed: bool = False
    transposed: bool = False
    classes: int | None = None
    objectness: bool = False


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
    origin = Origin.SHAPES
    if masks:
        task_type = TaskType.IMAGE_SEGMENTATION
    else:
        is_certain, oriented = _has_angle(rows, columns, view)
        task_type = TaskType.ORIENTED_OBJECT_DETECTION if oriented else TaskType.OBJECT_DETECTION
        origin = Origin.SHAPES if is_certain else Origin.GUESSED
        task_type = view.declared_task or task_type
    keypoints = view.model_files.metadata.keypoints
    oriented = task_type is TaskType.ORIENTED_OBJECT_DETECTION
    extra = view.outputs[1].shape[1] if masks else 1 if oriented else math.prod(keypoints or (0,))
    name = _layout(rows, columns, extra, view)
    if name is None:
        return None
    channels = columns if name == _TRANSPOSED else rows
    classes = None if name in _SUPPRESSED else channels - BOX - extra
    row_format = RowFormat(suppressed=name in _SUPPRESSED, transposed=name == _TRANSPOSED, classes=classes)
    if task_type is not TaskType.OBJECT_DETECTION:
        keypoints = None
    return Match(
        layout=name,
        decoder=_decoder(task_type, row_format, keypoints),
        outputs=view.outputs,
        task_origin=origin,
        classes=classes,
        facts=(keypoints_fact(keypoints, Origin.MODEL_FILE),) if keypoints else (),
    )


def _decoder(task_type: TaskType, rows: RowFormat, keypoints: tuple[int, int] | None) -> OutputDecoder:
    if task_type is TaskType.IMAGE_SEGMENTATION:
        return MaskDecoder(partial(_outline, rows=rows))
    if task_type is TaskType.ORIENTED_OBJECT_DETECTION:
        return OrientedBoxDecoder(partial(_find_oriented, rows=rows))
    return BoxDecoder(partial(find, rows=rows), keypoints)


def _has_angle(rows: int, columns: int, view: GraphView) -> tuple[bool, bool]:
    """Return whether the shape determines if boxes have an angle, and whether they have one."""
    if columns in (_DETECTION, _DETECTION + 1) and view.declared_layout in (None, *_SUPPRESSED):
        counted = view.classes is not None and BOX + view.classes == columns
        if view.declared_layout is not None or rows <= MAX_DETECTION_ROWS or (rows > columns and not counted):
            return True, columns == _DETECTION + 1
    channels = columns if view.declared_layout == _TRANSPOSED or rows > columns else rows
    if view.classes is None:
        return False, False
    return channels in (BOX + view.classes, BOX + view.classes + 1), channels == BOX + view.classes + 1


def _layout(rows: int, columns: int, extra: int, view: GraphView) -> str | None:
    """Return the layout as declared or as the shape shows; None if the shape does not match."""
    name = view.declared_layout
    if name is not None:
        width = rows if name == _RAW else columns
        fits = width > BOX + extra if name in (_RAW, _TRANSPOSED) else width == _DETECTION + extra
        return name if name in _NAMES and fits else None
    channels = None if view.classes is None else BOX + view.classes + extra
    metadata = view.model_files.metadata
    suppressed = metadata.suppressed or metadata.end_to_end
    if (
        columns == _DETECTION + extra
        and rows != channels
        and (suppressed or columns != channels or rows <= MAX_DETECTION_ROWS)
    ):
        return _END2END if metadata.end_to_end else _NMS
    if rows == channels:
        return _RAW
    if columns == channels:
        return _TRANSPOSED
    return _RAW if BOX + extra < rows < columns else None


def _find_oriented(answer: RawOutputs, parameters: DetectionParameters, *, rows: RowFormat) -> Candidates:
    candidates = read_rows(answer.outputs[0], rows, parameters.score_threshold, _MAX_ORIENTED)
    boxes = np.concatenate([candidates.boxes, candidates.extras], axis=1)
    candidates = msgspec.structs.replace(candidates, boxes=boxes)
    if rows.suppressed:
        return candidates
    return candidates.select(
        suppress_rotated_boxes(boxes, candidates.scores, candidates.class_ids, parameters.iou_threshold)
    )


def _outline(answer: RawOutputs, item: SegmentationInput, *, rows: RowFormat) -> Outline:
    """Combine prototype masks with the coefficients of each object (YOLACT), limited to its box."""
    candidates = find(answer, item.parameters, rows=rows)
    prototypes: NDArray[np.float32] = answer.outputs[1]
    grid = MaskGrid(prototypes, answer)
    boxes = clip_boxes(answer.placement.boxes_to_image(candidates.boxes), item.image.width, item.image.height)
    contours = [
        grid.prototype_contours(coefficients, box) for coefficients, box in zip(candidates.extras, boxes, strict=True)
    ]
    return Outline(class_ids=candidates.class_ids, scores=candidates.scores, contours=contours)


def read_rows(output: NDArray[Any], rows: RowFormat, score_threshold: float, max_count: int) -> Candidates:
    """Read the output of one image.

    Args:
        output: (4 + nc + k, N), transposed (N, 4 + nc + k), with objectness (N, 5 + nc), suppressed (M, 6 + k).
        rows: format of the output.
        score_threshold: candidates with a lower score, 0 or NaN are dropped first.
        max_count: maximum number of candidates; the best are kept.

    Returns:
        Candidates with boxes as in the output: xyxy for suppressed upright boxes, cx, cy, w, h for all others.
    """
    if rows.suppressed:
        return _read_suppressed(output, score_threshold)
    columns = output.T if rows.transposed else output
    first = BOX + rows.objectness
    end = first + (rows.classes or 0)
    # The methods of an array call a ufunc through a Python function.
    best = np.maximum.reduce(columns[first:end], axis=0)
    if rows.objectness:
        best = best * columns[BOX]
    chosen = best_indices(best, score_threshold, max_count)
    picked = columns[:, chosen].astype(np.float32, copy=False)
    return Candidates(
        boxes=np.ascontiguousarray(picked[:BOX].T),
        scores=best[chosen].astype(np.float32, copy=False),
        class_ids=picked[first:end].argmax(axis=0),
        extras=picked[end:].T,
    ).finite()


def find(answer: RawOutputs, parameters: DetectionParameters, *, rows: RowFormat) -> Candidates:
    """Return the upright objects in the first output after suppression; boxes (n, 4) xyxy in input pixels."""
    candidates = read_rows(answer.outputs[0], rows, parameters.score_threshold, _MAX_CANDIDATES)
    if rows.suppressed:
        return candidates
    boxes: NDArray[np.float32] = xywh_to_xyxy(candidates.boxes)
    kept = suppress_boxes(boxes, candidates.scores, candidates.class_ids, parameters.iou_threshold)
    return msgspec.structs.replace(candidates, boxes=boxes).select(kept)


def _read_suppressed(output: NDArray[Any], score_threshold: float) -> Candidates:
    # Graphs pad the output with rows of zeros.
    chosen = best_indices(output[:, BOX], score_threshold, len(output))
    picked = output[np.sort(chosen)].astype(np.float32, copy=False)
    picked = picked[np.isfinite(picked).all(axis=1)]
    return Candidates(
        boxes=picked[:, :BOX],
        scores=picked[:, BOX],
        class_ids=picked[:, BOX + 1].astype(np.intp),
        extras=picked[:, BOX + 2 :],
    )


YOLO = Layout(
    _NAMES, _TASKS, "[b, 4 + nc, N], [b, N, 4 + nc] or [b, M, 6], and prototypes [b, nm, h, w] for masks", _recognise
)
