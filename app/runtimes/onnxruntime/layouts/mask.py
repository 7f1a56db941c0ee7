"""Decode one mask of the foreground: [b, 1, h, w], from a U-Net, U2-Net, ISNet or a matting network.

- ``mask``: values in 0..1; cells over 0.5 are the object.
- ``mask-logits``: cells over 0 are the object.

Graphs may return further masks of the same kind after the first, which are left out. The mask is enlarged bilinearly
to the size of the image. The object's score is the mean of its probability.
"""

from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.candidates import sigmoid
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, ONES, STRETCHED, ZEROS
from app.runtimes.onnxruntime.layouts.layout import GraphView, Layout, MaskDecoder, Match, Outline, planes_first
from app.runtimes.onnxruntime.mask_grid import MaskGrid
from tasks.image_segmentation import SegmentationInput
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import TaskType

_PROBABILITIES, _LOGITS = _NAMES = ("mask", "mask-logits")


def _recognise(view: GraphView) -> Match | None:
    is_requested = view.declared_task is TaskType.IMAGE_SEGMENTATION or view.declared_layout in _NAMES
    if not is_requested or not view.outputs:
        return None
    outputs = [planes_first(output, view.inputs) for output in view.outputs]
    if not all(
        output.is_float and output.blank.ndim == 4 and output.shape[1] == 1 and output.blank.size for output in outputs
    ):
        return None
    layout, origin = _form(view)
    keras = view.inputs.channels_last
    return Match(
        layout=layout,
        decoder=MaskDecoder(
            partial(_outline, logits=layout == _LOGITS, channels_last=outputs[0] is not view.outputs[0])
        ),
        outputs=view.outputs[:1],
        origin=origin,
        classes=1,
        names=("foreground",),
        preprocessing=msgspec.structs.replace(
            STRETCHED,
            mean=ZEROS if keras else IMAGENET_MEAN,
            std=ONES if keras else IMAGENET_STD,
            origin=Origin.GUESSED,
        ),
    )


def _form(view: GraphView) -> tuple[str, Origin]:
    if view.declared_layout in _NAMES:
        return view.declared_layout, Origin.DECLARED
    output = view.outputs[0]
    if "logit" in output.name.lower():
        return _LOGITS, Origin.MODEL_FILE
    values: NDArray[Any] = output.blank
    return (_PROBABILITIES if bool(((values >= 0) & (values <= 1)).all()) else _LOGITS), Origin.GUESSED


def _outline(answer: RawOutputs, item: SegmentationInput, *, logits: bool, channels_last: bool) -> Outline:
    values: NDArray[np.float32] = answer.outputs[0]
    if np.isnan(values).all():
        raise InferenceError(ErrorKind.MODEL_FAILED, "The model returned scores that are all NaN")
    planes = np.nan_to_num(values.transpose(2, 0, 1) if channels_last else values)
    grid = MaskGrid(planes, answer.placement, answer.height, answer.width)
    probabilities = sigmoid(grid.planes[0]) if logits else np.clip(grid.planes[0], 0, 1)
    if not logits:
        grid.planes = grid.planes - np.float32(0.5)
    contours = grid.plane_contours(0)
    score = float(probabilities[probabilities > 0.5].mean()) if contours else 0.0
    found = int(bool(contours) and score >= item.parameters.score_threshold)
    return Outline(
        class_ids=np.zeros(found, np.intp), scores=np.full(found, score, np.float32), contours=[contours][:found]
    )


MASK = Layout(
    names=_NAMES, task_types=(TaskType.IMAGE_SEGMENTATION,), expected_outputs="[b, 1, h, w]", recognise=_recognise
)
