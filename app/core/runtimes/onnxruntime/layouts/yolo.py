"""Decode Ultralytics' ONNX exports (``ultralytics/engine/exporter.py``, "output0" and "output1"), and older YOLOs.

- ``raw``: detect [b, 4 + nc, N], obb [b, 4 + nc + 1, N], segment [b, 4 + nc + nm, N] and prototypes [b, nm, h, w], pose
  [b, 4 + nc + keypoints, N]; boxes cx, cy, w, h in input pixels; no suppression yet.
- ``raw-transposed``: the same with the last two dimensions swapped.
- ``nms``: detect [b, M, 6] xyxy, score, class; obb [b, M, 7] cx, cy, w, h, score, class, r; segment [b, M, 6 + nm] and
  prototypes.
- ``end2end``: the rows of ``nms``, from a network that needs no suppression.

Older models have an objectness score: [b, N, 5 + nc] with cx, cy, w, h, objectness, classes. It is multiplied by the
class scores. Both layouts have the same shape, as have transposed oriented detections. Therefore the settings must
declare the layout, except for YOLOv5 files, which name classes but no task, and for three candidates in each cell.

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

from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.images.preprocessing import NO_PREPROCESSING, PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.layout import (
    Candidates,
    FindObjects,
    GraphView,
    Layout,
    Match,
    Outline,
    best_indices,
    grid_corners,
    is_map_or_features,
    takes_text_lines,
)
from app.core.runtimes.onnxruntime.mask_grid import MaskGrid
from metadata.model import Origin
from tasks.image_segmentation import SegmentationInput
from tasks.inference.error import model_failed
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType
from tasks.vision.filtering import (
    MAX_BOXES,
    MAX_ORIENTED_BOXES,
    clip_boxes,
    suppress_boxes,
    suppress_rotated_boxes,
    xywh_to_xyxy,
)

_BOX = 4
"""Values of a box."""

_MAX_DETECTION_ROWS = 1000
"""An output with more rows contains candidates rather than detections."""

_RAW, _TRANSPOSED, _NMS, _END2END = _NAMES = ("raw", "raw-transposed", "nms", "end2end")
_SUPPRESSED = (_NMS, _END2END)
_TASKS = (TaskType.OBJECT_DETECTION, TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION)

_DETECTION = 6
"""Columns of a suppressed row: box, score, class."""

_STRIDES = ((8, 16, 32), (8, 16, 32, 64))
"""Pixels between the cells of each grid, for models with three or four grids."""
_ANCHORS = 3
"""Candidates of each cell in YOLOv5 and YOLOv7; later YOLOs have one."""


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
    classes, find = None, partial(_read_suppressed, oriented=oriented)
    if name not in _SUPPRESSED:
        transposed = name == _TRANSPOSED
        classes = (columns if transposed else rows) - _BOX - extra
        find = partial(_find, classes=classes, transposed=transposed, oriented=oriented)
    is_guess = name == _NMS and view.declared_layout is None and not _shows_detections(view)
    return Match(
        layout=name,
        task_type=task_type,
        outputs=view.outputs,
        decode=partial(_outline, find=find) if masks else find,
        keypoints=keypoints,
        origin=Origin.GUESSED if is_guess else Origin.SHAPES,
        task_origin=Origin.GUESSED if is_guess else origin,
        classes=classes,
    )


def _shows_detections(view: GraphView) -> bool:
    """Return whether the exporter says that rows are detections, or a detection in the black image does."""
    metadata = view.model_files.metadata
    return metadata.task is not None or metadata.suppressed or bool((view.outputs[0].blank[..., _BOX] > 0).any())


def _are_detections(view: GraphView) -> bool:
    """Return whether the columns for scores and classes hold such values; some graphs fill unused rows with -1."""
    rows = view.outputs[0].blank[..., _BOX:_DETECTION].reshape(-1, 2)
    scores, numbers = rows[np.isfinite(rows).all(axis=1)].T
    return bool(((scores <= 1) & (numbers == np.floor(numbers))).all())


def _candidate_counts(view: GraphView) -> tuple[set[int], set[int]]:
    """Return the possible numbers of candidates of grids over the input: with one and with several for each cell."""
    height, width = view.size
    cells = {sum((height // stride) * (width // stride) for stride in strides) for strides in _STRIDES} - {0}
    return cells, {_ANCHORS * number for number in cells}


def _may_be_suppressed(view: GraphView) -> bool:
    """Return whether rows can be detections: the exporter says so, or neither their number nor values contradict it."""
    metadata, count = view.model_files.metadata, view.outputs[0].shape[1]
    if metadata.suppressed or metadata.end_to_end:
        return True
    return all(count not in counts for counts in _candidate_counts(view)) and _are_detections(view)


def _has_angle(rows: int, columns: int, view: GraphView) -> tuple[bool, bool]:
    """Return whether the shape determines if boxes have an angle, and whether they have one."""
    is_declared = view.declared_layout in _SUPPRESSED
    if columns in (_DETECTION, _DETECTION + 1) and (
        is_declared or (view.declared_layout is None and _may_be_suppressed(view))
    ):
        counted = view.classes is not None and _BOX + view.classes == columns
        if is_declared or rows <= _MAX_DETECTION_ROWS or (rows > columns and not counted):
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
        and _may_be_suppressed(view)
    ):
        return _END2END if metadata.end_to_end else _NMS
    if rows == channels:
        return _RAW
    cells, anchors = _candidate_counts(view)
    # Several candidates for each cell are those of YOLOv5.
    if columns == channels and rows not in anchors:
        return _TRANSPOSED
    if channels is None and columns in (_DETECTION, _DETECTION + 1, _DETECTION + extra) and rows in cells:
        return _TRANSPOSED
    is_guess = view.declared_task is None and view.classes is None
    # Text recognisers, depth maps and hidden states have outputs of this rank, too.
    if is_guess and (takes_text_lines(view.inputs) or is_map_or_features(view.outputs[0], view.inputs)):
        return None
    return _RAW if _BOX + extra < rows < columns else None


def _read_suppressed(answer: RawOutputs, parameters: DetectionParameters, *, oriented: bool) -> Candidates:
    """Return the objects of a graph that includes suppression: rows (M, 6 + k) of a box, a score and a class."""
    output: NDArray[Any] = answer.outputs[0]
    # Graphs pad the output with rows of zeros.
    chosen = best_indices(output[:, _BOX], parameters.score_threshold, len(output))
    rows = output[np.sort(chosen)].astype(np.float32, copy=False)
    rows = rows[np.isfinite(rows).all(axis=1)]
    boxes, extras = rows[:, :_BOX], rows[:, _DETECTION:]
    return Candidates(
        boxes=np.concatenate([boxes, extras], axis=1) if oriented else boxes,
        scores=rows[:, _BOX],
        class_ids=rows[:, _BOX + 1].astype(np.intp),
        extras=extras,
    )


def _find(
    answer: RawOutputs,
    parameters: DetectionParameters,
    *,
    classes: int,
    transposed: bool = False,
    objectness: bool = False,
    oriented: bool = False,
) -> Candidates:
    """Return the best of the candidates (4 + nc + k, N) after suppression; upright boxes as xyxy.

    `transposed` candidates are (N, 4 + nc + k). An `objectness` score may follow the box, and the angle of an
    `oriented` box follows the scores. Candidates with a score under the threshold, 0 or NaN are dropped first.
    """
    columns: NDArray[Any] = answer.outputs[0].T if transposed else answer.outputs[0]
    first = _BOX + objectness
    end = first + classes
    # The methods of an array call a ufunc through a Python function.
    best = np.maximum.reduce(columns[first:end], axis=0)
    if objectness:
        best = best * columns[_BOX]
    chosen = best_indices(best, parameters.score_threshold, MAX_ORIENTED_BOXES if oriented else MAX_BOXES)
    picked = columns[:, chosen].astype(np.float32, copy=False)
    candidates = Candidates(
        boxes=np.ascontiguousarray(picked[:_BOX].T),
        scores=best[chosen].astype(np.float32, copy=False),
        class_ids=picked[first:end].argmax(axis=0),
        extras=picked[end:].T,
    ).finite()
    if oriented:
        boxes, suppress = np.concatenate([candidates.boxes, candidates.extras], axis=1), suppress_rotated_boxes
    else:
        boxes, suppress = xywh_to_xyxy(candidates.boxes), suppress_boxes
    kept = suppress(
        boxes, candidates.scores, candidates.class_ids, parameters.iou_threshold, agnostic=parameters.agnostic
    )
    return msgspec.structs.replace(candidates, boxes=boxes).select(kept)


def _outline(answer: RawOutputs, item: SegmentationInput, *, find: FindObjects) -> Outline:
    """Combine prototype masks with the coefficients of each object (YOLACT), limited to its box."""
    candidates = find(answer, item.parameters)
    prototypes: NDArray[np.float32] = answer.outputs[1]
    grid = MaskGrid(prototypes, answer)
    boxes = clip_boxes(answer.placement.boxes_to_image(candidates.boxes), item.image.width, item.image.height)
    contours = [
        grid.prototype_contours(coefficients, box) for coefficients, box in zip(candidates.extras, boxes, strict=True)
    ]
    return Outline(class_ids=candidates.class_ids, scores=candidates.scores, contours=contours)


_YOLOV5, _YOLOX = "yolov5", "yolox"
_GRID_RANK = 5
_EXPECTED = "[b, N, 5 + nc]"
_MAX_EXPONENT = 20.0
"""Its exponential is a box of about 500 million cells: enough for any image, without overflow."""


def _recognise_objectness(view: GraphView, *, name: str) -> Match | None:
    # YOLOv5 may also export its three grids separately, after the combined output.
    output = view.outputs[0]
    if output.blank.ndim != 3 or not output.is_float or output.shape[2] <= _BOX + 1:
        return None
    classes = output.shape[2] - _BOX - 1
    if view.declared_layout is None and not _fits_objectness(view, name=name):
        return None
    metadata = view.model_files.metadata
    return Match(
        layout=name,
        task_type=TaskType.OBJECT_DETECTION,
        outputs=(output,),
        decode=partial(_find_with_objectness if name == _YOLOV5 else _find_in_grids, classes=classes),
        by_names=name == _YOLOV5 and metadata.names is not None and metadata.task is None,
        classes=classes,
        preprocessing=PartialPreprocessing(
            resize="pad", interpolation="bilinear", antialias=False, scale=1.0, channel_order="BGR", box_scale="common"
        )
        if name == _YOLOX
        else NO_PREPROCESSING,
    )


def _fits_objectness(view: GraphView, *, name: str) -> bool:
    """Return whether the labels, or without labels the number of candidates, fit the layout."""
    output, *others = view.outputs
    _, count, columns = output.shape
    cells, anchors = _candidate_counts(view)
    metadata = view.model_files.metadata
    if metadata.suppressed or metadata.end_to_end or (name == _YOLOX and count in anchors):
        return False
    if view.classes is not None:
        return columns == _BOX + 1 + view.classes and (count > _MAX_DETECTION_ROWS or count in cells | anchors)
    # Wider rows may hold landmarks, as those of YOLOv5-face.
    has_grids_only = all(other.blank.ndim == _GRID_RANK for other in others)
    return columns in (_DETECTION, _DETECTION + 1) and count in cells | anchors and has_grids_only


_find_with_objectness = partial(_find, transposed=True, objectness=True)


def _find_in_grids(answer: RawOutputs, parameters: DetectionParameters, *, classes: int) -> Candidates:
    output: NDArray[Any] = answer.outputs[0].copy()
    for strides in _STRIDES:
        sides = [(answer.height // stride, answer.width // stride, stride) for stride in strides]
        if sum(rows * columns for rows, columns, _ in sides) == len(output):
            break
    else:
        grids = f"YOLOX's grids over {answer.height}x{answer.width} pixels"
        raise model_failed(f"The model returned {len(output)} candidates, which do not fit {grids}")
    scale = np.concatenate([np.full((rows * columns, 1), stride, np.float32) for rows, columns, stride in sides])
    output[:, :2] = output[:, :2] * scale + np.concatenate([grid_corners(*side) for side in sides])
    output[:, 2:_BOX] = np.exp(np.minimum(output[:, 2:_BOX], _MAX_EXPONENT)) * scale
    return _find_with_objectness(msgspec.structs.replace(answer, outputs=(output,)), parameters, classes=classes)


YOLO = Layout(
    _NAMES,
    _TASKS,
    "[b, 4 + nc, N], [b, N, 4 + nc] or [b, M, 6], and prototypes [b, nm, h, w] for masks",
    _recognise,
    ((3,), (3, 4)),
)
YOLOV5 = Layout((_YOLOV5,), _TASKS[:1], _EXPECTED, partial(_recognise_objectness, name=_YOLOV5), ((3,),))
YOLOX = Layout((_YOLOX,), _TASKS[:1], _EXPECTED, partial(_recognise_objectness, name=_YOLOX), ((3,),))
