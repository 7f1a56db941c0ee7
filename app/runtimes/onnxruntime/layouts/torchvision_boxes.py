"""Decode torchvision's detectors: ``boxes`` [N, 4], ``labels`` [N] and ``scores`` [N], without a batch dimension.

Mask R-CNN adds ``masks`` [N, 1, h, w], probabilities for each pixel of the input: it is read as IMAGE_SEGMENTATION
unless the settings declare OBJECT_DETECTION. Keypoint R-CNN adds ``keypoints`` [N, K, 3], x, y and visibility.

The graph resizes and normalises the image by itself, suppresses duplicates, and returns xyxy in pixels of its input.
Images are RGB in 0..1, in their own size if the graph takes any. Class 0 is the background and never returned.
"""

import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Fact, Origin
from app.runtimes.onnxruntime.candidates import Candidates, best_indices
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.dynamic_input import OwnSize
from app.runtimes.onnxruntime.images.preprocessing import PartialPreprocessing
from app.runtimes.onnxruntime.layouts.layout import (
    BoxDecoder,
    Certainty,
    GraphView,
    Layout,
    MaskDecoder,
    Match,
    Outline,
    Output,
    keypoints_fact,
)
from app.runtimes.onnxruntime.layouts.rt_detr import find_ranked
from app.runtimes.onnxruntime.mask_grid import MaskGrid
from tasks.image_segmentation import SegmentationInput
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType

__all__ = ("TORCHVISION_BOXES",)

_NAME = "torchvision"
_NAMES = ("boxes", "labels", "scores")
_COORDINATES = 3
"""x, y and visibility."""


def _recognise(view: GraphView) -> Match | None:
    outputs = view.outputs_named("labels", "boxes", "scores")
    if outputs is None or view.inputs.target_sizes is not None:
        return None
    labels, boxes, scores = outputs
    if labels.blank.ndim != 1 or labels.shape != scores.shape or boxes.shape != (*labels.shape, 4):
        return None
    if not np.issubdtype(labels.blank.dtype, np.integer) or not (boxes.is_float and scores.is_float):
        return None
    decoder, extra = _decoder(view, len(labels.blank))
    read = {*_NAMES, *(output.name for output in extra)}
    facts = [
        Fact("further output", f"{output.name}, left out", Origin.MODEL_FILE)
        for output in view.outputs
        if output.name not in read
    ]
    if isinstance(decoder, BoxDecoder) and decoder.keypoints:
        facts.append(keypoints_fact(decoder.keypoints, Origin.MODEL_FILE))
    return Match(
        layout=_NAME,
        task_type=TaskType.IMAGE_SEGMENTATION if isinstance(decoder, MaskDecoder) else TaskType.OBJECT_DETECTION,
        decoder=decoder,
        outputs=[*outputs, *extra],
        unbatched=True,
        certainty=Certainty.NAMES,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        preprocessing_defaults=PartialPreprocessing(
            resize="stretch",
            interpolation="bilinear",
            antialias=True,
            dynamic_size=OwnSize(),
            scale=1 / 255,
            mean=(0.0, 0.0, 0.0),
            std=(1.0, 1.0, 1.0),
            channel_order="RGB",
        ),
        facts=facts,
    )


def _decoder(view: GraphView, count: int) -> tuple[BoxDecoder | MaskDecoder, list[Output]]:
    """Return the decoder, and the outputs that it reads besides the boxes.

    Args:
        view: the graph.
        count: number of objects in a blank image.
    """
    masks, points = view.outputs_named("masks"), view.outputs_named("keypoints")
    if masks and view.declared_task in (None, TaskType.IMAGE_SEGMENTATION):
        (mask,) = masks
        if mask.is_float and mask.blank.ndim == 4 and mask.shape[:2] == (count, 1):
            return MaskDecoder(_outline), masks
    if points:
        (point,) = points
        if point.is_float and point.blank.ndim == 3 and point.shape[::2] == (count, _COORDINATES):
            return BoxDecoder(_find_poses, (point.shape[1], _COORDINATES)), points
    return BoxDecoder(find_ranked), []


def _find_poses(answer: RawOutputs, parameters: DetectionParameters) -> Candidates:
    labels, boxes, scores, points = answer.outputs
    chosen = best_indices(scores, parameters.score_threshold, len(scores))
    return Candidates(
        boxes=boxes[chosen].astype(np.float32, copy=False),
        scores=scores[chosen].astype(np.float32, copy=False),
        class_ids=labels[chosen].astype(np.intp),
        extras=points[chosen].reshape(len(chosen), -1).astype(np.float32, copy=False),
    ).finite()


def _outline(answer: RawOutputs, item: SegmentationInput) -> Outline:
    labels, _, scores, masks = answer.outputs
    chosen = best_indices(scores, item.parameters.score_threshold, len(scores))
    # The decoder of masks looks for positive values.
    planes: NDArray[np.float32] = masks[chosen, 0] - np.float32(0.5)
    grid = MaskGrid(planes, answer.placement, answer.height, answer.width)
    return Outline(
        class_ids=labels[chosen].astype(np.intp),
        scores=scores[chosen].astype(np.float32, copy=False),
        contours=[grid.plane_contours(index) for index in range(len(chosen))],
    )


TORCHVISION_BOXES = Layout(
    names=(_NAME,),
    task_types=(TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION),
    expected_outputs="boxes [N, 4], labels [N] and scores [N], without a batch dimension, and masks [N, 1, h, w]",
    recognise=_recognise,
)
