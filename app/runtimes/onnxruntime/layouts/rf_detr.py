"""Decode RF-DETR as its own project exports it: ``dets`` [b, N, 4], ``labels`` [b, N, slots], optionally ``masks``.

(``rfdetr/export`` and ``rfdetr/models/postprocess.py``.) Boxes are cx, cy, w, h as fractions of the input. Labels are
logits of independent classes; the result is the best pairs of query and class. ``masks`` [b, N, h, w] are logits. If
there is one slot more than labels, the last slot is the background. Images are stretched, RGB, and normalised with the
ImageNet statistics.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Fact, Origin
from app.runtimes.onnxruntime.candidates import Candidates, class_pairs, fractions_to_xyxy, sigmoid
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, PartialPreprocessing
from app.runtimes.onnxruntime.layouts.layout import (
    BoxDecoder,
    Certainty,
    GraphView,
    Layout,
    MaskDecoder,
    Match,
    Outline,
)
from app.runtimes.onnxruntime.mask_grid import MaskGrid
from tasks.image_segmentation import SegmentationInput
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType

__all__ = ("RF_DETR",)

_NAME = "rf-detr"


def _recognise(view: GraphView) -> Match | None:
    outputs = view.outputs_named("dets", "labels", "masks") or view.outputs_named("dets", "labels")
    if outputs is None or not all(output.is_float for output in outputs):
        return None
    boxes, logits, *masks = outputs
    if boxes.blank.ndim != 3 or logits.blank.ndim != 3 or logits.shape[2] < 1 or boxes.shape != (*logits.shape[:2], 4):
        return None
    if masks and (masks[0].blank.ndim != 4 or masks[0].shape[:2] != logits.shape[:2] or not masks[0].blank.size):
        return None
    slots, metadata = logits.shape[2], view.model_files.metadata.rf_detr
    named_classes = sorted(metadata.class_id_to_name) if metadata else []
    has_named_classes = (
        bool(named_classes)
        and view.classes == len(named_classes)
        and named_classes[0] >= 0
        and named_classes[-1] < slots
    )
    background = not has_named_classes and view.classes == slots - 1
    class_numbers = named_classes if has_named_classes else range(slots - background)
    fact = Fact("background", f"class {slots - 1} of {slots} in the output, left out", Origin.CONVENTION)
    return Match(
        layout=_NAME,
        task_type=TaskType.IMAGE_SEGMENTATION if masks else TaskType.OBJECT_DETECTION,
        decoder=MaskDecoder(partial(_decode_masks, class_numbers=class_numbers))
        if masks
        else BoxDecoder(partial(_decode_boxes, class_numbers=class_numbers)),
        outputs=outputs,
        certainty=Certainty.NAMES,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        classes=len(class_numbers),
        preprocessing_defaults=PartialPreprocessing(
            resize="stretch",
            interpolation="bilinear",
            # `predict` antialiased until version 1.11; since then it resizes as in training.
            antialias=False,
            resizes_floats=True,
            scale=1 / 255,
            mean=(metadata.means if metadata else None) or IMAGENET_MEAN,
            std=(metadata.stds if metadata else None) or IMAGENET_STD,
            channel_order="RGB",
        ),
        facts=(fact,) if background else (),
    )


def _decode_boxes(answer: RawOutputs, parameters: DetectionParameters, *, class_numbers: Sequence[int]) -> Candidates:
    boxes, logits, *_ = answer.outputs
    scores: NDArray[np.float32] = sigmoid(logits[:, list(class_numbers)])
    corners = fractions_to_xyxy(boxes, answer.width, answer.height)
    return class_pairs(corners, scores, parameters.score_threshold, len(scores))


def _decode_masks(answer: RawOutputs, item: SegmentationInput, *, class_numbers: Sequence[int]) -> Outline:
    candidates = _decode_boxes(answer, item.parameters, class_numbers=class_numbers)
    grid = MaskGrid(answer.outputs[2], answer.placement, answer.height, answer.width)
    contours = [grid.plane_contours(query) for query in candidates.extras[:, 0].astype(int).tolist()]
    return Outline(class_ids=candidates.class_ids, scores=candidates.scores, contours=contours)


RF_DETR = Layout(
    names=(_NAME,),
    task_types=(TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION),
    expected_outputs="dets [b, N, 4], labels [b, N, slots], and masks [b, N, h, w]",
    recognise=_recognise,
)
