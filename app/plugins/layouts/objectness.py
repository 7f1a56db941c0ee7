"""Decode detections of older YOLOs, which have an objectness score.

The outputs are [b, N, 5 + nc] with cx, cy, w, h, objectness, classes. It is multiplied by the
class scores. Both layouts have the same shape, as have transposed oriented detections. Therefore the settings must
declare the layout, except for YOLOv5 files, which name classes but no task, and for three candidates in each cell.

- ``yolov5``: boxes in input pixels: YOLOv5, YOLOv7, and YOLOX exported with ``--decode_in_inference``.
- ``yolox``: boxes in cells of three grids, w and h as logarithms, as YOLOX exports them (``demo_postprocess`` in
  ``yolox/utils/demo_utils.py``). Its images are BGR in 0..255, with padding at the right and bottom.
"""

from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.images.preprocessing import NO_PREPROCESSING, PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.candidates import BOX_VALUES, DETECTION_VALUES, Candidates, find_candidates
from app.core.runtimes.onnxruntime.layouts.layout import GraphView, Layout, Match
from app.core.runtimes.onnxruntime.layouts.yolo import MAX_DETECTION_ROWS, STRIDES, candidate_counts
from tasks.inference.error import model_failed
from tasks.object_detection import DetectionInput
from tasks.task import TaskType

_YOLOV5, _YOLOX = "yolov5", "yolox"
_GRID_RANK = 5

_MAX_EXPONENT = 20.0
"""Its exponential is a box of about 500 million cells: enough for any image, without overflow."""


def grid_corners(rows: int, columns: int, stride: int) -> NDArray[np.float32]:
    """Return the (rows * columns, 2) left top corners of the cells of a grid, by row, pixels."""
    return (np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=2).reshape(-1, 2) * stride).astype(
        np.float32
    )


def _recognise_objectness(view: GraphView, *, name: str) -> Match | None:
    # YOLOv5 may also export its three grids separately, after the combined output.
    output = view.outputs[0]
    if output.blank.ndim != 3 or not output.is_float or output.shape[2] <= BOX_VALUES + 1:
        return None
    classes = output.shape[2] - BOX_VALUES - 1
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
    cells, anchors = candidate_counts(view)
    metadata = view.model_files.metadata
    if metadata.suppressed or metadata.end_to_end or (name == _YOLOX and count in anchors):
        return False
    if view.classes is not None:
        return columns == BOX_VALUES + 1 + view.classes and (count > MAX_DETECTION_ROWS or count in cells | anchors)
    # Wider rows may hold landmarks, as in YOLOv5-face.
    has_grids_only = all(other.blank.ndim == _GRID_RANK for other in others)
    return columns in (DETECTION_VALUES, DETECTION_VALUES + 1) and count in cells | anchors and has_grids_only


_find_with_objectness = partial(find_candidates, transposed=True, objectness=True)


def _find_in_grids(answer: RawOutputs, item: DetectionInput, *, classes: int) -> Candidates:
    output: NDArray[Any] = answer.outputs[0].copy()
    for strides in STRIDES:
        sides = [(answer.height // stride, answer.width // stride, stride) for stride in strides]
        if sum(rows * columns for rows, columns, _ in sides) == len(output):
            break
    else:
        grids = f"YOLOX's grids over {answer.height}x{answer.width} pixels"
        raise model_failed(f"The model returned {len(output)} candidates, which do not fit {grids}")
    scale = np.concatenate([np.full((rows * columns, 1), stride, np.float32) for rows, columns, stride in sides])
    output[:, :2] = output[:, :2] * scale + np.concatenate([grid_corners(*side) for side in sides])
    output[:, 2:BOX_VALUES] = np.exp(np.minimum(output[:, 2:BOX_VALUES], _MAX_EXPONENT)) * scale
    return _find_with_objectness(msgspec.structs.replace(answer, outputs=(output,)), item, classes=classes)


LAYOUTS = tuple(
    Layout((name,), (TaskType.OBJECT_DETECTION,), "[b, N, 5 + nc]", partial(_recognise_objectness, name=name))
    for name in (_YOLOV5, _YOLOX)
)
