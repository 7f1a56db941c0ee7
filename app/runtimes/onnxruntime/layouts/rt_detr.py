"""Decode RT-DETR and D-FINE as their projects export them: ``labels`` [b, N], ``boxes`` [b, N, 4], ``scores`` [b, N].

(``tools/export_onnx.py`` and ``tools/deployment/export_onnx.py``.) Boxes are xyxy, scaled to the input
``orig_target_sizes``. The graph ranks and scores the queries. Images are stretched, and RGB in 0..1.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.candidates import Candidates, best_indices
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.preprocessing import BYTE, ONES, STRETCHED, ZEROS
from app.runtimes.onnxruntime.layouts.layout import BoxDecoder, Certainty, GraphView, Layout, Match
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType

__all__ = ("RT_DETR", "find_ranked")

_NAME = "rt-detr"


def _recognise(view: GraphView) -> Match | None:
    outputs = view.outputs_named("labels", "boxes", "scores")
    if outputs is None or view.inputs.target_sizes is None:
        return None
    labels, boxes, scores = outputs
    if labels.blank.ndim != 2 or labels.shape != scores.shape or boxes.shape != (*labels.shape, 4):
        return None
    return Match(
        layout=_NAME,
        task_type=TaskType.OBJECT_DETECTION,
        decoder=BoxDecoder(find_ranked),
        outputs=outputs,
        certainty=Certainty.NAMES,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        preprocessing_defaults=msgspec.structs.replace(STRETCHED, scale=BYTE, mean=ZEROS, std=ONES),
    )


def find_ranked(answer: RawOutputs, parameters: DetectionParameters) -> Candidates:
    """Return the objects of one image from class numbers, xyxy boxes in input pixels, and scores."""
    labels, boxes, scores = answer.outputs
    chosen = best_indices(scores, parameters.score_threshold, len(scores))
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
    expected_outputs="labels [b, N], boxes [b, N, 4] and scores [b, N], and an input orig_target_sizes",
    recognise=_recognise,
)
