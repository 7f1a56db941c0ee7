"""Decode DETR models as transformers exports them: ``logits`` [b, N, slots] and ``pred_boxes`` [b, N, 4].

Boxes are cx, cy, w, h as fractions of the input. The logits have one of two forms, which shapes do not distinguish:

- ``detr``: softmax over the slots, where the last slot means no object; the result is the best class of each query.
- ``detr-sigmoid``: independent slots; the result is the best pairs of query and class.

(``post_process_object_detection`` of each model's image processor.)
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.engine.description import Origin
from app.runtimes.onnxruntime.conventions import IMAGENET_MEAN, IMAGENET_STD, Conventions
from app.runtimes.onnxruntime.graph import RawAnswer
from app.runtimes.onnxruntime.heads.candidates import Candidates, best_of, class_pairs, fractions_to_xyxy, sigmoid
from app.runtimes.onnxruntime.layouts.layout import Certainty, Layout, Match, ReadsBoxes, View
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType

__all__ = ("DETR", "DETR_SIGMOID")

_SOFTMAX, _SIGMOID = "detr", "detr-sigmoid"
_WANTS = "logits [b, N, slots] and pred_boxes [b, N, 4]"
_TASKS = (TaskType.OBJECT_DETECTION,)

_READINGS = {
    "detr": _SOFTMAX,
    "table-transformer": _SOFTMAX,
    "yolos": _SOFTMAX,
    "conditional_detr": _SIGMOID,
    "dab-detr": _SIGMOID,
    "d_fine": _SIGMOID,
    "deformable_detr": _SIGMOID,
    "lw_detr": _SIGMOID,
    "rf_detr": _SIGMOID,
    "rt_detr": _SIGMOID,
    "rt_detr_v2": _SIGMOID,
}
"""By ``model_type`` in config.json."""


def _recognise(view: View, *, name: str) -> Match | None:
    outputs = view.named("logits", "pred_boxes")
    if outputs is None or not all(output.is_float for output in outputs):
        return None
    logits, boxes = outputs
    if logits.blank.ndim != 3 or boxes.shape != (*logits.shape[:2], 4):
        return None
    softmax = name == _SOFTMAX
    classes = logits.shape[2] - softmax
    if classes < 1:
        return None
    config = view.evidence.neighbours.config
    known = _READINGS.get((config.model_type if config else None) or "")
    if view.declared is None and (known or name) != name:
        return None
    if view.declared is None and known is None and view.classes not in (None, classes):
        return None
    return Match(
        layout=name,
        task_type=TaskType.OBJECT_DETECTION,
        reading=ReadsBoxes(_find_likeliest if softmax else _find_pairs),
        outputs=outputs,
        certainty=Certainty.NAMES,
        origin=Origin.SHAPES if known is None else Origin.CONFIG,
        classes=classes,
        conventions=Conventions(
            resize="stretch", mean=IMAGENET_MEAN if softmax else None, std=IMAGENET_STD if softmax else None, bgr=False
        ),
    )


def _find_likeliest(answer: RawAnswer, parameters: DetectionParameters) -> Candidates:
    logits, boxes = answer.outputs
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = powers[:, :-1] / powers.sum(axis=1, keepdims=True)
    best: NDArray[np.float32] = probabilities.max(axis=1)
    chosen = best_of(best, parameters.score_threshold, len(best))
    extras: NDArray[np.float32] = np.zeros((len(chosen), 0), np.float32)
    return Candidates(
        boxes=fractions_to_xyxy(boxes, answer.width, answer.height)[chosen],
        scores=best[chosen],
        class_ids=probabilities[chosen].argmax(axis=1),
        extras=extras,
    ).finite()


def _find_pairs(answer: RawAnswer, parameters: DetectionParameters) -> Candidates:
    logits, boxes = answer.outputs
    corners = fractions_to_xyxy(boxes, answer.width, answer.height)
    return class_pairs(corners, sigmoid(logits), parameters.score_threshold, len(logits))


DETR = Layout(names=(_SOFTMAX,), task_types=_TASKS, wants=_WANTS, recognise=partial(_recognise, name=_SOFTMAX))
DETR_SIGMOID = Layout(names=(_SIGMOID,), task_types=_TASKS, wants=_WANTS, recognise=partial(_recognise, name=_SIGMOID))
