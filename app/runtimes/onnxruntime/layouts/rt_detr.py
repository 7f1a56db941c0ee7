"""Decode RT-DETR and D-FINE as their projects export them: ``labels`` [b, N], ``boxes`` [b, N, 4], ``scores`` [b, N].

(``tools/export_onnx.py`` and ``tools/deployment/export_onnx.py``.) Boxes are xyxy, scaled to the input
``orig_target_sizes``. The graph ranks and scores the queries. Images are stretched, and RGB in 0..1.
"""

import numpy as np
from numpy.typing import NDArray

from app.engine.description import Origin
from app.runtimes.onnxruntime.conventions import Conventions
from app.runtimes.onnxruntime.graph import RawAnswer
from app.runtimes.onnxruntime.heads.candidates import Candidates, best_of
from app.runtimes.onnxruntime.layouts.layout import Certainty, Layout, Match, ReadsBoxes, View
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType

__all__ = ("RT_DETR",)

_NAME = "rt-detr"
_ZEROS, _ONES = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


def _recognise(view: View) -> Match | None:
    outputs = view.named("labels", "boxes", "scores")
    if outputs is None or view.inputs.target_sizes is None:
        return None
    labels, boxes, scores = outputs
    if labels.blank.ndim != 2 or labels.shape != scores.shape or boxes.shape != (*labels.shape, 4):
        return None
    return Match(
        layout=_NAME,
        task_type=TaskType.OBJECT_DETECTION,
        reading=ReadsBoxes(_find),
        outputs=outputs,
        certainty=Certainty.NAMES,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        conventions=Conventions(resize="stretch", scale=1 / 255, mean=_ZEROS, std=_ONES, bgr=False),
    )


def _find(answer: RawAnswer, parameters: DetectionParameters) -> Candidates:
    labels, boxes, scores = answer.outputs
    chosen = best_of(scores, parameters.score_threshold, len(scores))
    extras: NDArray[np.float32] = np.zeros((len(chosen), 0), np.float32)
    return Candidates(
        boxes=boxes[chosen].astype(np.float32, copy=False),
        scores=scores[chosen].astype(np.float32, copy=False),
        class_ids=labels[chosen].astype(np.intp),
        extras=extras,
    ).finite()


RT_DETR = Layout(
    names=(_NAME,),
    task_types=(TaskType.OBJECT_DETECTION,),
    wants="labels [b, N], boxes [b, N, 4] and scores [b, N], and an input orig_target_sizes",
    recognise=_recognise,
)
