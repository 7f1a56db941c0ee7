"""Decode semantic segmentation with class numbers as output: [b, h, w] or [b, 1, h, w].

Ultralytics' ``semantic`` models return them as uint8. There are no probabilities, so every class scores 1. Each pixel
of the image gets the class of the cell at its centre.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Fact, Origin
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.layouts.layout import GraphView, Layout, MaskDecoder, Match, Outline
from app.runtimes.onnxruntime.layouts.semantic import class_contours
from tasks.image_segmentation import SegmentationInput
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import TaskType

__all__ = ("CLASS_MAP",)

_NAME = "class-map"
_MAX_CLASSES = 1000
"""An output with more distinct numbers is not a class map, and extracting its contours would take too long."""
_SCORES = Fact("scores", "1 for each class found, because the graph gives no probabilities", Origin.SHAPES)


def _recognise(view: GraphView) -> Match | None:
    if len(view.outputs) != 1:
        return None
    (output,) = view.outputs
    flat = output.blank.ndim == 3 or (output.blank.ndim == 4 and output.shape[1] == 1)
    if output.blank.dtype.kind not in "iu" or not flat or not output.blank.size:
        return None
    return Match(
        layout=_NAME,
        task_type=TaskType.IMAGE_SEGMENTATION,
        decoder=MaskDecoder(_outline),
        outputs=view.outputs,
        facts=(_SCORES,),
    )


def _outline(answer: RawOutputs, item: SegmentationInput) -> Outline:
    del item
    numbers: NDArray[np.integer[Any]] = answer.outputs[0].reshape(answer.outputs[0].shape[-2:])
    placement = answer.placement
    rows = _pixel_cells(placement.image_height, placement.scale_y, placement.offset_y, answer.height, numbers.shape[0])
    columns = _pixel_cells(placement.image_width, placement.scale_x, placement.offset_x, answer.width, numbers.shape[1])
    class_ids = np.unique(numbers[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]).astype(np.intp)
    if len(class_ids) > _MAX_CLASSES:
        message = f"The model returned {len(class_ids)} class numbers for one image, more than {_MAX_CLASSES}"
        raise InferenceError(ErrorKind.MODEL_FAILED, message)
    contours = class_contours(numbers[rows][:, columns], class_ids)
    return Outline(class_ids=class_ids, scores=np.ones(len(class_ids), np.float32), contours=contours)


def _pixel_cells(pixels: int, scale: float, offset: float, side: int, cells: int) -> NDArray[np.intp]:
    """Return the cell at the centre of each pixel along one axis, as (pixels,) indices.

    Args:
        pixels: length of the image, pixels.
        scale: input pixels per image pixel.
        offset: offset of the image in the input, input pixels.
        side: length of the input, pixels.
        cells: length of the map, cells.
    """
    indices = np.floor(((np.arange(pixels) + 0.5) * scale + offset) * cells / side).astype(np.intp)
    return np.clip(indices, 0, cells - 1)


CLASS_MAP = Layout(
    names=(_NAME,),
    task_types=(TaskType.IMAGE_SEGMENTATION,),
    expected_outputs="integers [b, h, w]",
    recognise=_recognise,
)
