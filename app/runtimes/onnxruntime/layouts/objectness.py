"""Decode YOLO models with an objectness score: [b, N, 5 + nc] with cx, cy, w, h, objectness, classes.

The class scores are multiplied by the objectness. Both layouts have the same shape, as have transposed oriented
detections. Therefore the settings must declare the layout, except for YOLOv5 files, which name classes but no task.

- ``yolov5``: boxes in input pixels: YOLOv5, YOLOv7, and YOLOX exported with ``--decode_in_inference``.
- ``yolox``: boxes in cells of three grids, w and h as logarithms, as YOLOX exports them (``demo_postprocess`` in
  ``yolox/utils/demo_utils.py``). Its images are BGR in 0..255, with padding at the right and bottom.
"""

from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.preprocessing import NO_PREPROCESSING, PartialPreprocessing
from app.runtimes.onnxruntime.layouts.layout import BoxDecoder, Candidates, GraphView, Layout, Match
from app.runtimes.onnxruntime.layouts.yolo import BOX, MAX_DETECTION_ROWS, RowFormat, find
from tasks.inference.error import ErrorKind, InferenceError
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType

_YOLOV5, _YOLOX = "yolov5", "yolox"
_TASKS = (TaskType.OBJECT_DETECTION,)
_GRIDS = ((8, 16, 32), (8, 16, 32, 64))
"""Strides in pixels, for models with three or four grids."""
_EXPECTED = "[b, N, 5 + nc]"
_MAX_EXPONENT = 20.0
"""Its exponential is a box of about 500 million cells: enough for any image, without overflow."""


def _recognise(view: GraphView, *, name: str) -> Match | None:
    # YOLOv5 may also export its three grids separately, after the combined output.
    output = view.outputs[0]
    if output.blank.ndim != 3 or not output.is_float or output.shape[2] <= BOX + 1:
        return None
    _, count, columns = output.shape
    classes = columns - BOX - 1
    if view.declared_layout is None and (view.classes != classes or count <= MAX_DETECTION_ROWS):
        return None
    metadata = view.model_files.metadata
    is_yolov5_file = name == _YOLOV5 and metadata.names is not None and metadata.task is None
    rows = RowFormat(transposed=True, classes=classes, objectness=True)
    return Match(
        layout=name,
        decoder=BoxDecoder(partial(find if name == _YOLOV5 else _find_in_grids, rows=rows)),
        outputs=(output,),
        by_names=is_yolov5_file,
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
    output[:, 2:BOX] = np.exp(np.minimum(output[:, 2:BOX], _MAX_EXPONENT)) * stride
    return find(msgspec.structs.replace(answer, outputs=(output,)), parameters, rows=rows)


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


YOLOV5 = Layout((_YOLOV5,), _TASKS, _EXPECTED, partial(_recognise, name=_YOLOV5))
YOLOX = Layout((_YOLOX,), _TASKS, _EXPECTED, partial(_recognise, name=_YOLOX))
