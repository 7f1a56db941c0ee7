"""Decode graphs that rank their objects themselves: ``labels``, ``boxes`` in xyxy, and ``scores``.

- ``rt-detr``: RT-DETR and D-FINE as their projects export them (``tools/export_onnx.py`` and
  ``tools/deployment/export_onnx.py``): ``labels`` [b, N], ``boxes`` [b, N, 4] and ``scores`` [b, N]. Boxes are scaled
  to the input ``orig_target_sizes``. Images are stretched, and RGB in 0..1.
- ``torchvision``: its detectors: ``boxes`` [N, 4], ``labels`` [N] and ``scores`` [N], without a batch dimension, in
  pixels of the input. Mask R-CNN adds ``masks`` [N, 1, h, w], probabilities for each pixel of the input: it is read as
  IMAGE_SEGMENTATION unless the settings declare OBJECT_DETECTION. Keypoint R-CNN adds ``keypoints`` [N, K, 3], x, y and
  visibility. The graph resizes and normalises the image by itself, and suppresses duplicates. Images are RGB in 0..1,
  in their own size if the graph takes any. Class 0 is the background and never returned.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.images.preprocessing import BYTE, ONES, STRETCHED, ZEROS, OwnSize
from app.core.runtimes.onnxruntime.layouts.layout import (
    Candidates,
    GraphOutput,
    GraphView,
    Layout,
    Match,
    RawSegments,
    best_indices,
)
from app.core.runtimes.onnxruntime.mask_grid import MaskGrid
from metadata.model import Origin
from tasks.image_segmentation import SegmentationInput
from tasks.object_detection import DetectionInput
from tasks.task import TaskType

_RT_DETR, _TORCHVISION = "rt-detr", "torchvision"
_COORDINATES = 3
"""x, y and visibility."""
_UNIT_RGB = msgspec.structs.replace(STRETCHED, scale=BYTE, mean=ZEROS, std=ONES)


def _ranked_outputs(view: GraphView, rank: int) -> list[GraphOutput] | None:
    """Return the labels, boxes and scores, if the labels have this rank."""
    outputs = view.outputs_named("labels", "boxes", "scores")
    if outputs is None:
        return None
    labels, boxes, scores = outputs
    fits = labels.blank.ndim == rank and labels.shape == scores.shape and boxes.shape == (*labels.shape, 4)
    return outputs if fits else None


def _recognise_rt_detr(view: GraphView) -> Match | None:
    outputs = _ranked_outputs(view, 2)
    if outputs is None or view.inputs.target_sizes is None:
        return None
    return Match(
        layout=_RT_DETR,
        task_type=TaskType.OBJECT_DETECTION,
        decode=_find,
        outputs=outputs,
        by_names=True,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        preprocessing=_UNIT_RGB,
    )


def _recognise_torchvision(view: GraphView) -> Match | None:
    outputs = _ranked_outputs(view, 1)
    if outputs is None or view.inputs.target_sizes is not None:
        return None
    labels, boxes, scores = outputs
    if not np.issubdtype(labels.blank.dtype, np.integer) or not (boxes.is_float and scores.is_float):
        return None
    count, masks, points = len(labels.blank), view.outputs_named("masks") or [], view.outputs_named("keypoints") or []
    if view.declared_task not in (None, TaskType.IMAGE_SEGMENTATION) or not all(
        mask.is_float and mask.blank.ndim == 4 and mask.shape[:2] == (count, 1) for mask in masks
    ):
        masks = []
    if masks or not all(
        point.is_float and point.blank.ndim == 3 and point.shape[::2] == (count, _COORDINATES) for point in points
    ):
        points = []
    return Match(
        layout=_TORCHVISION,
        task_type=TaskType.IMAGE_SEGMENTATION if masks else TaskType.OBJECT_DETECTION,
        outputs=[*outputs, *masks, *points],
        decode=_outline if masks else _find,
        keypoints=(points[0].shape[1], _COORDINATES) if points else None,
        unbatched=True,
        by_names=True,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        preprocessing=msgspec.structs.replace(_UNIT_RGB, dynamic_size=OwnSize()),
    )


def _find(answer: RawOutputs, item: DetectionInput) -> Candidates:
    labels, boxes, scores, *points = answer.outputs
    chosen = best_indices(scores, item.floor, len(scores))
    extras = points[0][chosen].reshape(len(chosen), -1) if points else boxes[chosen, :0]
    return Candidates(
        boxes=boxes[chosen].astype(np.float32, copy=False),
        scores=scores[chosen].astype(np.float32, copy=False),
        class_ids=labels[chosen].astype(np.intp),
        extras=extras.astype(np.float32, copy=False),
    ).finite()


def _outline(answer: RawOutputs, item: SegmentationInput) -> RawSegments:
    labels, _, scores, masks = answer.outputs
    chosen = best_indices(scores, item.floor, len(scores))
    # The decoder of masks looks for positive values.
    planes: NDArray[np.float32] = masks[chosen, 0] - np.float32(0.5)
    grid = MaskGrid(planes, answer)
    return RawSegments(
        class_ids=labels[chosen].astype(np.intp),
        scores=scores[chosen].astype(np.float32, copy=False),
        contours=[grid.plane_contours(index) for index in range(len(chosen))],
    )


LAYOUTS = (
    Layout(
        (_RT_DETR,),
        (TaskType.OBJECT_DETECTION,),
        "labels [b, N], boxes [b, N, 4] and scores [b, N], and an input orig_target_sizes",
        _recognise_rt_detr,
    ),
    Layout(
        (_TORCHVISION,),
        (TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION),
        "boxes [N, 4], labels [N] and scores [N], without a batch dimension, and masks [N, 1, h, w]",
        _recognise_torchvision,
    ),
)
