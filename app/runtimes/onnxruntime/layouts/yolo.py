"""Decode Ultralytics' ONNX exports (``ultralytics/engine/exporter.py``, "output0" and "output1"), and older YOLOs.

- ``raw``: detect [b, 4 + nc, N], obb [b, 4 + nc + 1, N], segment [b, 4 + nc + nm, N] and prototypes [b, nm, h, w], pose
  [b, 4 + nc + keypoints, N]; boxes cx, cy, w, h in input pixels; no suppression yet.
- ``raw-transposed``: the same with the last two dimensions swapped.
- ``nms``: detect [b, M, 6] xyxy, score, class; obb [b, M, 7] cx, cy, w, h, score, class, r; segment [b, M, 6 + nm] and
  prototypes.
- ``end2end``: the rows of ``nms``, from a network that needs no suppression.

Older models have an objectness score: [b, N, 5 + nc] with cx, cy, w, h, objectness, classes. It is multiplied by the
class scores. Both layouts have the same shape, as have transposed oriented detections. Therefore the settings must
declare the layout, except for YOLOv5 files, which name classes but no task.

- ``yolov5``: boxes in input pixels: YOLOv5, YOLOv7, and YOLOX exported with ``--decode_in_inference``.
- ``yolox``: boxes in cells of three grids, w and h as logarithms, as YOLOX exports them (``demo_postprocess`` in
  ``yolox/utils/demo_utils.py``). Its images are BGR in 0..255, with padding at the right and bottom.
"""

import math
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.preprocessing import NO_PREPROCESSING, PartialPreprocessing
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
)
from app.runtimes.onnxruntime.mask_grid import MaskGrid
from tasks.image_segmentation import SegmentationInput
from tasks.inference.error import ErrorKind, InferenceError
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType
from tasks.vision.filtering import clip_boxes, suppress_boxes, suppress_rotated_boxes, xywh_to_xyxy

_BOX = 4
"""Values of a box."""

_MAX_DETECTION_ROWS = 1000
"""An output with more rows contains candidates rather than detections."""

_MAX_CANDIDATES = 30_000
"""Ultralytics' limit for suppression."""

_RAW, _TRANSPOSED, _NMS, _END2END = _NAMES = ("raw", "raw-transposed", "nms", "end2end")
_SUPPRESSED = (_NMS, _END2END)
_TASKS = (TaskType.OBJECT_DETECTION, TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION)

_DETECTION = 6
"""Columns of a suppressed row: box, score, class."""

_MAX_ORIENTED = 2000
"""Candidates. Each oriented box is compared with all others, so more would take seconds."""


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
    channels = columns if name == _TRANSPOSED else rows
    classes = None if name in _SUPPRESSED else channels - _BOX - extra
    row_format = RowFormat(suppressed=name in _SUPPRESSED, transposed=name == _TRANSPOSED, classes=classes)
    return Match(
        layout=name,
        decoder=_decoder(task_type, row_format, keypoints),
        outputs=view.outputs,
        task_origin=origin,
        classes=classes,
    )


def _decoder(task_type: TaskType, rows: RowFormat, keypoints: tuple[int, int] | None) -> OutputDecoder:
    if task_type is TaskType.IMAGE_SEGMENTATION:
        return MaskDecoder(partial(_outline, rows=rows))
    if task_type is TaskType.ORIENTED_OBJECT_DETECTION:
        return OrientedBoxDecoder(partial(_find_oriented, rows=rows))
    return BoxDecoder(partial(_find, rows=rows), keypoints)


def _has_angle(rows: int, columns: int, view: GraphView) -> tuple[bool, bool]:
    """Return whether the shape determines if boxes have an angle, and whether they have one."""
    if columns in (_DETECTION, _DETECTION + 1) and view.declared_layout in (None, *_SUPPRESSED):
        counted = view.classes is not None and _BOX + view.classes == columns
        if view.declared_layout is not None or rows <= _MAX_DETECTION_ROWS or (rows > columns and not counted):
            return True, columns == _DETECTION + 1
    channels = columns if view.declared_layout == _TRANSPOSED or rows > columns else rows
    if view.classes is None:
        return False, False
    return channels in (_BOX + view.classes, _BOX + view.classes + 1), channels == _BOX + view.classes + 1


def _layout(rows: int, columns: int, extra: int, view: GraphView) -> str | None:
    """Return the layout as declared or as the shape shows; None if the shape does not match."""
    name = view.declared_layout
    if name is not None:
        width = rows if name == _RAW else columns
        fits = width > _BOX + extra if name in (_RAW, _TRANSPOSED) else width == _DETECTION + extra
        return name if name in _NAMES and fits else None
    channels = None if view.classes is None else _BOX + view.classes + extra
    metadata = view.model_files.metadata
    suppressed = metadata.suppressed or metadata.end_to_end
    if (
        columns == _DETECTION + extra
        and rows != channels
        and (suppressed or columns != channels or rows <= _MAX_DETECTION_ROWS)
    ):
        return _END2END if metadata.end_to_end else _NMS
    if rows == channels:
        return _RAW
    if columns == channels:
        return _TRANSPOSED
    return _RAW if _BOX + extra < rows < columns else None


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
    candidates = _find(answer, item.parameters, rows=rows)
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
        # Graphs pad the output with rows of zeros.
        chosen = best_indices(output[:, _BOX], score_threshold, len(output))
        picked = output[np.sort(chosen)].astype(np.float32, copy=False)
        picked = picked[np.isfinite(picked).all(axis=1)]
        return Candidates(
            boxes=picked[:, :_BOX],
            scores=picked[:, _BOX],
            class_ids=picked[:, _BOX + 1].astype(np.intp),
            extras=picked[:, _BOX + 2 :],
        )
    columns = output.T if rows.transposed else output
    first = _BOX + rows.objectness
    end = first + (rows.classes or 0)
    # The methods of an array call a ufunc through a Python function.
    best = np.maximum.reduce(columns[first:end], axis=0)
    if rows.objectness:
        best = best * columns[_BOX]
    chosen = best_indices(best, score_threshold, max_count)
    picked = columns[:, chosen].astype(np.float32, copy=False)
    return Candidates(
        boxes=np.ascontiguousarray(picked[:_BOX].T),
        scores=best[chosen].astype(np.float32, copy=False),
        class_ids=picked[first:end].argmax(axis=0),
        extras=picked[end:].T,
    ).finite()


def _find(answer: RawOutputs, parameters: DetectionParameters, *, rows: RowFormat) -> Candidates:
    """Return the upright objects in the first output after suppression; boxes (n, 4) xyxy in input pixels."""
    candidates = read_rows(answer.outputs[0], rows, parameters.score_threshold, _MAX_CANDIDATES)
    if rows.suppressed:
        return candidates
    boxes: NDArray[np.float32] = xywh_to_xyxy(candidates.boxes)
    kept = suppress_boxes(boxes, candidates.scores, candidates.class_ids, parameters.iou_threshold)
    return msgspec.structs.replace(candidates, boxes=boxes).select(kept)


_YOLOV5, _YOLOX = "yolov5", "yolox"
_GRIDS = ((8, 16, 32), (8, 16, 32, 64))
"""Strides in pixels, for models with three or four grids."""
_EXPECTED = "[b, N, 5 + nc]"
_MAX_EXPONENT = 20.0
"""Its exponential is a box of about 500 million cells: enough for any image, without overflow."""


def _recognise_objectness(view: GraphView, *, name: str) -> Match | None:
    # YOLOv5 may also export its three grids separately, after the combined output.
    output = view.outputs[0]
    if output.blank.ndim != 3 or not output.is_float or output.shape[2] <= _BOX + 1:
        return None
    _, count, columns = output.shape
    classes = columns - _BOX - 1
    if view.declared_layout is None and (view.classes != classes or count <= _MAX_DETECTION_ROWS):
        return None
    metadata = view.model_files.metadata
    rows = RowFormat(transposed=True, classes=classes, objectness=True)
    return Match(
        layout=name,
        decoder=BoxDecoder(partial(_find if name == _YOLOV5 else _find_in_grids, rows=rows)),
        outputs=(output,),
        by_names=name == _YOLOV5 and metadata.names is not None and metadata.task is None,
        classes=classes,
        preprocessing=PartialPreprocessing(
            resize="pad", interpolation="bilinear", antialias=False, scale=1.0, channel_order="BGR", box_scale="common"
        )
        if name == _YOLOX
        else NO_PREPROCESSING,
    )


def _find_in_grids(answer: RawOutputs, parameters: DetectionParameters, *, rows: RowFormat) -> Candidates:
    output: NDArray[Any] = answer.outputs[0].copy()
    cells = _cells(len(output), answer.height, answer.width)
    stride = cells[:, 2:]
    output[:, :2] = (output[:, :2] + cells[:, :2]) * stride
    output[:, 2:_BOX] = np.exp(np.minimum(output[:, 2:_BOX], _MAX_EXPONENT)) * stride
    return _find(msgspec.structs.replace(answer, outputs=(output,)), parameters, rows=rows)


def _cells(count: int, height: int, width: int) -> NDArray[np.float32]:
    """Return the column, row and stride of each candidate's cell, as (count, 3)."""
    for strides in _GRIDS:
        sides = [(height // stride, width // stride, stride) for stride in strides]
        if sum(rows * columns for rows, columns, _ in sides) == count:
            parts = [
                np.stack([*np.meshgrid(np.arange(columns), np.arange(rows)), np.full((rows, columns), stride)], axis=2)
                for rows, columns, stride in sides
            ]
            return np.concatenate([part.reshape(-1, 3) for part in parts]).astype(np.float32)
    message = f"The model returned {count} candidates, which do not fit YOLOX's grids over {height}x{width} pixels"
    raise InferenceError(ErrorKind.MODEL_FAILED, message)


YOLO = Layout(
    _NAMES, _TASKS, "[b, 4 + nc, N], [b, N, 4 + nc] or [b, M, 6], and prototypes [b, nm, h, w] for masks", _recognise
)
YOLOV5 = Layout((_YOLOV5,), _TASKS[:1], _EXPECTED, partial(_recognise_objectness, name=_YOLOV5))
YOLOX = Layout((_YOLOX,), _TASKS[:1], _EXPECTED, partial(_recognise_objectness, name=_YOLOX))
