"""Decode image classifiers of any origin: [b, nc], in one of three forms.

- ``probabilities``: values in 0..1, used unchanged.
- ``logits``: softmax is applied.
- ``multi-label``: logits of independent classes; sigmoid is applied. The settings or the model's files must
  declare this form.

The shape [b, nc, 1, 1] is decoded in the same way.
"""

import re
from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.layouts.layout import (
    FEATURES,
    GraphOutput,
    GraphView,
    Layout,
    Match,
    are_probabilities,
    sigmoid,
    softmax,
)
from metadata.model import Origin
from tasks.inference.error import model_failed
from tasks.task import TaskType

_PROBABILITIES, _LOGITS, _MULTI_LABEL = _NAMES = ("probabilities", "logits", "multi-label")
_SCORES = re.compile(r"logit|prob|softmax|score|class")
"""Names, in lower case, of outputs that are scores of classes."""
_ROW_WIDTHS = (6, 7)
"""Columns of suppressed boxes: box, score and class, and maybe the number of the image."""
_IMAGENET_CLASSES = (1000, 1001, 21841, 21843)
"""Classes of ImageNet-1k and ImageNet-21k, also with a background."""


def _recognise(view: GraphView) -> Match | None:
    outputs = view.outputs_named(_LOGITS) or view.outputs
    if len(outputs) != 1:
        return None
    (output,) = outputs
    if (
        not output.is_float
        or output.blank.ndim not in (2, 4)
        or output.shape[1] < 1
        or any(side != 1 for side in output.shape[2:])
    ):
        return None
    if view.declared_task is None and view.declared_layout is None and not _shows_classes(output, view):
        return None
    layout, origin = _score_form(output, view)
    return Match(
        layout=layout,
        task_type=TaskType.IMAGE_CLASSIFICATION,
        decode=partial(_scores, layout=layout),
        outputs=outputs,
        origin=origin,
        classes=output.shape[1],
    )


def _shows_classes(output: GraphOutput, view: GraphView) -> bool:
    """Return whether labels, the name, the number or the values of an output show that it has scores of classes.

    Embeddings, measurements, points, and the rows of detectors have its shape, too.
    """
    name, count = output.name.lower(), output.shape[1]
    if FEATURES.search(name) or len(output.blank) != max(view.inputs.batch, 1):
        return False
    return (
        (view.classes is not None and (view.classes == count or count not in _ROW_WIDTHS))
        or _SCORES.search(name) is not None
        or count in _IMAGENET_CLASSES
        or (count > 1 and are_probabilities(output.blank))
    )


def _score_form(output: GraphOutput, view: GraphView) -> tuple[str, Origin]:
    """Return the form of the scores: as declared, exported or named, or else guessed from the blank image."""
    if view.declared_layout in _NAMES:
        return view.declared_layout, Origin.DECLARED
    if view.model_files.ultralytics_task is not None:
        return _PROBABILITIES, Origin.MODEL_FILE
    if view.model_files.folder.multi_label:
        return _MULTI_LABEL, Origin.CONFIG
    name = output.name.lower()
    # The softmax of a single class is always 1.
    unnormalised = _MULTI_LABEL if output.shape[1] == 1 else _LOGITS
    if "logit" in name:
        return unnormalised, Origin.MODEL_FILE
    if "prob" in name or "softmax" in name:
        return _PROBABILITIES, Origin.MODEL_FILE
    if output.shape[1] == 1:
        normalised = bool(((output.blank >= 0) & (output.blank <= 1)).all())
    else:
        normalised = are_probabilities(output.blank)
    return (_PROBABILITIES if normalised else unnormalised), Origin.GUESSED


def _scores(answer: RawOutputs, *, layout: str) -> NDArray[np.float32]:
    values: NDArray[np.float32] = answer.outputs[0].reshape(-1)
    if not np.logical_and.reduce(np.isfinite(values)):
        raise model_failed("The model returned scores that are not finite numbers")
    if layout == _PROBABILITIES:
        return values
    return sigmoid(values) if layout == _MULTI_LABEL else softmax(values)


CLASSES = Layout(_NAMES, (TaskType.IMAGE_CLASSIFICATION,), "[b, nc]", _recognise)
