"""Decode torchvision's detectors: ``boxes`` [N, 4], ``labels`` [N] and ``scores`` [N], without a batch dimension.

The graph resizes and normalises the image by itself, suppresses duplicates, and returns xyxy in pixels of its input.
Images are RGB in 0..1, in their own size if the graph takes any. Class 0 is the background and never returned. The
``masks`` of Mask R-CNN and the ``keypoints`` of Keypoint R-CNN are left out.
"""

import numpy as np

from app.engine.models.model_metadata import Fact, Origin
from app.runtimes.onnxruntime.images.dynamic_input import OwnSize
from app.runtimes.onnxruntime.images.preprocessing_defaults import PreprocessingDefaults
from app.runtimes.onnxruntime.layouts.layout import BoxDecoder, Certainty, GraphView, Layout, Match
from app.runtimes.onnxruntime.layouts.rt_detr import find_ranked
from tasks.task import TaskType

__all__ = ("TORCHVISION_BOXES",)

_NAME = "torchvision"
_NAMES = ("boxes", "labels", "scores")


def _recognise(view: GraphView) -> Match | None:
    outputs = view.outputs_named("labels", "boxes", "scores")
    if outputs is None or view.inputs.target_sizes is not None:
        return None
    labels, boxes, scores = outputs
    if labels.blank.ndim != 1 or labels.shape != scores.shape or boxes.shape != (*labels.shape, 4):
        return None
    if not np.issubdtype(labels.blank.dtype, np.integer) or not (boxes.is_float and scores.is_float):
        return None
    others = [output.name for output in view.outputs if output.name not in _NAMES]
    return Match(
        layout=_NAME,
        task_type=TaskType.OBJECT_DETECTION,
        decoder=BoxDecoder(find_ranked),
        outputs=outputs,
        unbatched=True,
        certainty=Certainty.NAMES,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        preprocessing_defaults=PreprocessingDefaults(
            resize="stretch",
            interpolation="bilinear",
            antialias=True,
            dynamic_size=OwnSize(),
            scale=1 / 255,
            mean=(0.0, 0.0, 0.0),
            std=(1.0, 1.0, 1.0),
            bgr=False,
        ),
        facts=tuple(Fact("further output", f"{name}, left out", Origin.MODEL_FILE) for name in others),
    )


TORCHVISION_BOXES = Layout(
    names=(_NAME,),
    task_types=(TaskType.OBJECT_DETECTION,),
    expected_outputs="boxes [N, 4], labels [N] and scores [N], without a batch dimension",
    recognise=_recognise,
)
