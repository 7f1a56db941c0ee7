"""Decode DETR models as transformers exports them: ``logits`` [b, N, slots] and ``pred_boxes`` [b, N, 4].

Boxes are cx, cy, w, h as fractions of the input. The logits have one of two forms, which shapes do not distinguish:

- ``detr``: softmax over the slots, where the last slot means no object; the result is the best class of each query.
- ``detr-sigmoid``: independent slots; the result is the best pairs of query and class.

(``post_process_object_detection`` of each model's image processor.)
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.candidates import Candidates, best_indices, class_pairs, fractions_to_xyxy, sigmoid
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, PartialPreprocessing
from app.runtimes.onnxruntime.layouts.layout import BoxDecoder, Certainty, GraphView, Layout, Match
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType

__all__ = ("DETR", "DETR_SIGMOID")

_SOFTMAX, _SIGMOID = "detr", "detr-sigmoid"
_EXPECTED = "logits [b, N, slots] and pred_boxes [b, N, 4]"
_TASKS = (TaskType.OBJECT_DETECTION,)

_LAYOUTS_BY_MODEL_TYPE = {
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


def _recognise(view: GraphView, *, name: str) -> Match | None:
    outputs = view.outputs_named("logits", "pred_boxes")
    if outputs is None or not all(output.is_float for output in outputs):
        return None
    logits, boxes = outputs
    if logits.blank.ndim != 3 or boxes.shape != (*logits.shape[:2], 4):
        return None
    softmax = name == _SOFTMAX
    classes = logits.shape[2] - softmax
    if classes < 1:
        return None
    config = view.model_files.hugging_face.config
    known_layout = _LAYOUTS_BY_MODEL_TYPE.get((config.model_type if config else None) or "")
    if view.declared_layout is None and (known_layout or name) != name:
        return None
    if view.declared_layout is None and known_layout is None and view.classes not in (None, classes):
        return None
    return Match(
        layout=name,
        task_type=TaskType.OBJECT_DETECTION,
        decoder=BoxDecoder(_decode_best_class if softmax else _decode_pairs),
        outputs=outputs,
        certainty=Certainty.NAMES,
        origin=Origin.SHAPES if known_layout is None else Origin.CONFIG,
        classes=classes,
        preprocessing_defaults=PartialPreprocessing(
            resize="stretch",
            interpolation="bilinear",
            antialias=True,
            mean=IMAGENET_MEAN if softmax else None,
            std=IMAGENET_STD if softmax else None,
            channel_order="RGB",
        ),
    )


def _decode_best_class(answer: RawOutputs, parameters: DetectionParameters) -> Candidates:
    logits, boxes = answer.outputs
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = powers[:, :-1] / powers.sum(axis=1, keepdims=True)
    best: NDArray[np.float32] = probabilities.max(axis=1)
    chosen = best_indices(best, parameters.score_threshold, len(best))
    extras: NDArray[np.float32] = np.zeros((len(chosen), 0), np.float32)
    return Candidates(
        boxes=fractions_to_xyxy(boxes, answer.width, answer.height)[chosen],
        scores=best[chosen],
        class_ids=probabilities[chosen].argmax(axis=1),
        extras=extras,
    ).finite()


def _decode_pairs(answer: RawOutputs, parameters: DetectionParameters) -> Candidates:
    logits, boxes = answer.outputs
    corners = fractions_to_xyxy(boxes, answer.width, answer.height)
    return class_pairs(corners, sigmoid(logits), parameters.score_threshold, len(logits))


DETR = Layout(
    names=(_SOFTMAX,), task_types=_TASKS, expected_outputs=_EXPECTED, recognise=partial(_recognise, name=_SOFTMAX)
)
DETR_SIGMOID = Layout(
    names=(_SIGMOID,), task_types=_TASKS, expected_outputs=_EXPECTED, recognise=partial(_recognise, name=_SIGMOID)
)
