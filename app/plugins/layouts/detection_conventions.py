"""Decide how the outputs of a detector are read: by its exporter, the settings, or the values for a black image.

Each exporter's convention comes from its source:

- MMDeploy, for MMDetection and MMYOLO (``mmdeploy/codebase/mmdet``): ``dets`` and ``labels``, and ``masks`` of boxes or
  of the whole input.
- TensorFlow's Object Detection API (``exporter_lib_v2.py``): ``detection_boxes`` as y1, x1, y2, x2 in fractions, and
  classes from 1 as floats. The graph resizes images by itself.
- graphs with the number of objects, as for TensorRT's EfficientNMS (YOLOv7, MMYOLO's easydeploy), and super-gradients
  for YOLO-NAS (``conversion/onnx/nms.py`` and ``pose_nms.py``), whose flat rows are image, box, score and class, or
  image, box, score and keypoints.
- RT-DETR and D-FINE (``tools/export_onnx.py``), which scale boxes to the input ``orig_target_sizes``.
- PaddleDetection (``deploy/EXPORT_MODEL.md``): rows of class, score and box, with the input ``scale_factor``.
- torchvision's detectors, without a batch dimension: class 0 is the background. Detectron2's (``export/flatten.py``):
  no background, and BGR images.
- effdet (``DetBenchPredict``): rows [b, N, 6] with classes from 1.
- SSD-like pairs (UltraFace, pytorch-ssd): boxes, and the scores of all classes.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.label_files import BACKGROUNDS
from app.core.runtimes.onnxruntime.images.preprocessing import (
    BYTE,
    IMAGENET_MEAN,
    IMAGENET_STD,
    NO_PREPROCESSING,
    ONES,
    STRETCHED,
    ZEROS,
    OwnSize,
    PartialPreprocessing,
)
from app.core.runtimes.onnxruntime.layouts.layout import GraphView
from app.plugins.layouts.detection_outputs import DetectionOutputs
from app.plugins.layouts.settings import DetectionSettings
from metadata.model import Origin

_MAX_FRACTION = 2.0
"""Boxes may exceed the image a little, but no box of pixels is this small."""
_SUM_TOLERANCE = 1e-3
_CHOICES = {
    "boxes": ("xyxy", "yxyx"),
    "unit": ("pixel", "fraction"),
    "scores": ("softmax", "sigmoid"),
    "background": (0, "none"),
    "rows": ("box-score-class", "box-class-score"),
}
"""The readings that remain if nothing decides, most likely first."""

_BACKGROUNDS = (*BACKGROUNDS, "bg", "none", "n/a", "???", "_", "")
"""Labels, in lower case, that stand for the background."""

_UNIT_RGB = msgspec.structs.replace(STRETCHED, scale=BYTE, mean=ZEROS, std=ONES)
_OWN_SIZE = msgspec.structs.replace(_UNIT_RGB, dynamic_size=OwnSize())
_GUESSED = PartialPreprocessing(
    origin=Origin.GUESSED, resize="stretch", interpolation="bilinear", antialias=False, scale=BYTE
)
_IMAGENET = msgspec.structs.replace(_GUESSED, mean=IMAGENET_MEAN, std=IMAGENET_STD)


_Scores = Literal["probabilities"] | None
_Background = int | Literal["none"] | None


class Convention(DetectionSettings, frozen=True, kw_only=True):
    """What is known about the outputs; None where nothing decides. The fields are explained in `DetectionSettings`."""

    preprocessing: PartialPreprocessing = NO_PREPROCESSING


_PIXELS = Convention(boxes="xyxy", unit="pixel", scores="probabilities", background="none", rows="box-score-class")
_MMDEPLOY = msgspec.structs.replace(_PIXELS, preprocessing=_IMAGENET)
_RT_DETR = msgspec.structs.replace(_PIXELS, preprocessing=_UNIT_RGB)
_PADDLE = msgspec.structs.replace(
    _PIXELS, rows="class-score-box", preprocessing=msgspec.structs.replace(_IMAGENET, interpolation="bicubic")
)
_TORCHVISION = msgspec.structs.replace(_PIXELS, background=0, preprocessing=_OWN_SIZE)
_DETECTRON2 = msgspec.structs.replace(
    _PIXELS, preprocessing=msgspec.structs.replace(_OWN_SIZE, scale=1.0, channel_order="BGR")
)
_TENSORFLOW = Convention(boxes="yxyx", unit="fraction", background=0, preprocessing=_OWN_SIZE)
_SSD = Convention(
    boxes="xyxy",
    preprocessing=msgspec.structs.replace(_GUESSED, mean=(127 / 255,) * 3, std=(128 / 255,) * 3),
)


def decide_reading(
    found: DetectionOutputs, view: GraphView, declared: DetectionSettings
) -> tuple[Convention, Mapping[str, tuple[object, object]]]:
    """Return how the outputs are read, and the settings with two remaining choices.

    Settings decide first, then the exporter and the values for a black image, unless these two contradict each other.
    """
    convention, shown = _convention(found, view), _shown(found, view)
    necessary = ["boxes", "unit", "background"]
    necessary += ["scores"] if found.are_pairs else ["rows"] if "rows" in found.roles else []
    decided: dict[str, object] = {}
    choices: dict[str, tuple[object, object]] = {}
    for name in necessary:
        own, known, seen = (getattr(source, name) for source in (declared, convention, shown))
        if own is None and known is not None and seen is not None and known != seen:
            choices[name] = (seen, known)
        decided[name] = next((value for value in (own, known, seen) if value is not None), None)
        if decided[name] is None:
            choices[name] = _CHOICES[name]
    if not choices and not found.by_names and view.declared_layout is None:
        # Outputs of other models have the same shapes.
        choices["boxes"] = (decided["boxes"], "xywh")
    return msgspec.structs.replace(convention, **decided), choices


def _convention(found: DetectionOutputs, view: GraphView) -> Convention:
    """Return the convention of the exporter that the names of the outputs and inputs show."""
    roles = found.roles
    body = next(iter(roles.values()))
    name, classes = body.name.lower(), roles.get("classes")
    if "rows" in roles:
        if view.inputs.scales or "multiclass_nms" in name:
            return _PADDLE
        if body.blank.ndim == 3:
            return msgspec.structs.replace(_PIXELS, background=None)
        return _PIXELS if found.by_names else msgspec.structs.replace(_PIXELS, rows=None)
    if not found.by_names:
        return Convention()
    if "dets" in roles:
        return _MMDEPLOY
    if "detection_boxes" in name and classes is not None:
        return _TENSORFLOW if classes.is_float else msgspec.structs.replace(_TENSORFLOW, background=None)
    if view.inputs.target_sizes is not None:
        return _RT_DETR
    if view.inputs.scales:
        return _PADDLE
    if view.inputs.channels_last:
        # Exporters of TensorFlow and Keras write any of the forms.
        return Convention(preprocessing=_OWN_SIZE)
    if found.are_pairs:
        return _SSD
    if found.unbatched and classes is not None and not classes.is_float:
        return _DETECTRON2 if "pred_classes" in classes.name.lower() else _TORCHVISION
    return _PIXELS if "count" in roles else Convention(boxes="xyxy")


def _shown(found: DetectionOutputs, view: GraphView) -> Convention:
    """Return what the values for a black image show."""
    boxes = found.roles.get("boxes")
    if boxes is None or not boxes.blank.size:
        return Convention()
    values: NDArray[np.float32] = boxes.blank.reshape(-1, 4)
    unit = "pixel" if np.abs(values).max() > _MAX_FRACTION else "fraction" if found.are_pairs else None
    if not found.are_pairs:
        return Convention(unit=unit)
    # Many candidates cover the image, and the width of only a few exceeds the x of their centre.
    has_corners = bool((values[:, 2:] >= values[:, :2]).all())
    scores, background = _shown_scores(found, view)
    return Convention(
        boxes=None if has_corners else "cxcywh",
        unit=unit,
        scores=scores,
        background=background,
    )


def _shown_scores(found: DetectionOutputs, view: GraphView) -> tuple[_Scores, _Background]:
    """Return the form of the scores of candidates, and their background; None for what is not certain."""
    scores = pair_scores(found.roles["scores"].blank[0], found.roles["boxes"].shape[1])
    slots = scores.shape[1]
    if not ((scores >= 0) & (scores <= 1)).all():
        return None, "none" if view.classes == slots else None
    has_sum = slots > 1 and bool((np.abs(scores.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())
    likeliest = int(scores.mean(axis=0).argmax())
    if has_sum and names_background(view, likeliest):
        return "probabilities", likeliest
    if view.classes == slots or (view.classes is None and not has_sum):
        return "probabilities", "none"
    if view.classes in (None, slots - 1) and likeliest in (0, slots - 1):
        return "probabilities", 0 if likeliest == 0 else -1
    return "probabilities", None


def names_background(view: GraphView, number: int) -> bool:
    """Return whether the labels have a name for the background at this class number."""
    names = view.model_files.labels[0] if view.model_files.labels else ()
    return number < len(names) and names[number].lower() in _BACKGROUNDS


def pair_scores(scores: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Return the scores of one image's candidates as (N, slots); some graphs have (slots, N)."""
    if scores.ndim == 1:
        return scores[:, np.newaxis]
    return scores if scores.shape[0] == count else scores.T
