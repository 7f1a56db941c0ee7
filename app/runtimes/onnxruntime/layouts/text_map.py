"""Decode text detection by differentiable binarisation (DB) as PaddleOCR exports it: [b, 1, h, w] text scores in 0..1.

(``ppocr/postprocess/db_postprocess.py``.) Cells over a threshold form regions. The score of a region is the mean of the
map within its minimum rectangle. The rectangle is then expanded on all sides by its area times a ratio over its
perimeter, which reverts the shrinking in training. The rectangle covers its cells completely, whereas PaddleOCR
measures between the centres of cells.
"""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.heads.candidates import Candidates
from app.runtimes.onnxruntime.images.dynamic_input import EdgeLimits
from app.runtimes.onnxruntime.images.preprocessing_defaults import PreprocessingDefaults
from app.runtimes.onnxruntime.layouts.layout import Certainty, GraphView, Layout, Match, OrientedBoxDecoder
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType

__all__ = ("TEXT_MAP",)

_NAME = "text-map"
_INPUT_NAME = "x"
_OUTPUT_STARTS = ("sigmoid_", "fetch_name_", "save_infer_model")
"""Names of inputs and outputs from Paddle's converter."""

_THRESHOLD = 0.3
_GROWTH = 1.5
_MIN_WIDTH = 3
"""Cells, from centre to centre. Narrower regions are noise."""
_MAX_REGIONS = 1000
_MAX_NOISE = 3
"""Pixels of the image. PaddleOCR drops boxes with a side of this length or less (``filter_tag_det_res``)."""

_DEFAULTS = PreprocessingDefaults(
    size=(736, 736),
    resize="stretch",
    interpolation="bilinear",
    antialias=False,
    dynamic_size=EdgeLimits(shortest=736, longest=2000, multiple=32),
    scale=1 / 255,
    # PaddleOCR normalises BGR pixels with ImageNet's RGB statistics, so they are listed in reverse here.
    mean=(0.406, 0.456, 0.485),
    std=(0.225, 0.224, 0.229),
    bgr=True,
    origin=Origin.GUESSED,
)


def _recognise(view: GraphView) -> Match | None:
    if len(view.outputs) != 1:
        return None
    (output,) = view.outputs
    if not output.is_float or output.blank.ndim != 4 or output.shape[1] != 1 or min(output.shape[2:]) < 2:
        return None
    is_paddle_export = view.inputs.image.name == _INPUT_NAME and output.name.startswith(_OUTPUT_STARTS)
    is_requested = view.declared_task is TaskType.ORIENTED_OBJECT_DETECTION or view.declared_layout == _NAME
    if not (is_paddle_export or is_requested):
        return None
    return Match(
        layout=_NAME,
        task_type=TaskType.ORIENTED_OBJECT_DETECTION,
        decoder=OrientedBoxDecoder(_find),
        outputs=view.outputs,
        certainty=Certainty.NAMES if is_paddle_export else Certainty.SHAPES,
        origin=Origin.MODEL_FILE if is_paddle_export else Origin.SHAPES,
        task_origin=Origin.MODEL_FILE,
        classes=1,
        names=("text",),
        preprocessing_defaults=_DEFAULTS,
    )


def _find(answer: RawOutputs, parameters: DetectionParameters) -> Candidates:
    cells: NDArray[np.float32] = np.nan_to_num(answer.outputs[0][0])
    across, down = answer.width / cells.shape[1], answer.height / cells.shape[0]
    regions, _ = cv2.findContours((cells > _THRESHOLD).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    least_side = (_MAX_NOISE + 1) * math.sqrt(answer.placement.scale_x * answer.placement.scale_y)
    boxes: list[tuple[float, ...]] = []
    scores: list[float] = []
    for region in regions[:_MAX_REGIONS]:
        (cx, cy), (width, height), degrees = cv2.minAreaRect(region)
        if min(width, height) < _MIN_WIDTH:
            continue
        score = _mean_within(cells, ((cx, cy), (width, height), degrees))
        if score < parameters.score_threshold:
            continue
        # Contours pass through the centres of cells, half a cell inside the covered area.
        box = _expand(cx + 0.5, cy + 0.5, width + 1, height + 1, degrees, across, down)
        if min(box[2:4]) < least_side:
            continue
        boxes.append(box)
        scores.append(min(score, 1.0))
    extras: NDArray[np.float32] = np.zeros((len(boxes), 0), np.float32)
    return Candidates(
        boxes=np.array(boxes, np.float32).reshape(-1, 5),
        scores=np.array(scores, np.float32),
        class_ids=np.zeros(len(boxes), np.intp),
        extras=extras,
    )


def _expand(
    cx: float, cy: float, width: float, height: float, degrees: float, across: float, down: float
) -> tuple[float, ...]:
    """Expand a rectangle of cells. Return cx, cy, w, h in input pixels and r in -pi/2..pi/2; w is the longer side."""
    grown = _GROWTH * width * height / (width + height)
    width, height = width + grown, height + grown
    if height > width:
        width, height, degrees = height, width, degrees - 90
    scale = math.sqrt(across * down)
    angle = math.remainder(math.radians(degrees), math.pi)
    return cx * across, cy * down, width * scale, height * scale, angle


def _mean_within(
    cells: NDArray[np.float32], rectangle: tuple[tuple[float, float], tuple[float, float], float]
) -> float:
    """Return the mean of the cells whose centres are in a rectangle or on its border."""
    corners = np.rint(cv2.boxPoints(rectangle)).astype(np.int32)
    left, top = np.maximum(corners.min(axis=0), 0).tolist()
    right, bottom = np.minimum(corners.max(axis=0), np.array(cells.shape[::-1]) - 1).tolist()
    inside = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(inside, [corners - np.array([left, top], np.int32)], 1)
    return float(cv2.mean(cells[top : bottom + 1, left : right + 1], inside)[0])


TEXT_MAP = Layout(
    names=(_NAME,),
    task_types=(TaskType.ORIENTED_OBJECT_DETECTION,),
    expected_outputs="[b, 1, h, w]",
    recognise=_recognise,
)
