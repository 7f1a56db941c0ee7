"""Decode image classifiers of any origin: [b, nc], in one of three forms.

- ``probabilities``: values in 0..1, used unchanged.
- ``logits``: softmax is applied.
- ``multi-label``: logits of independent classes; sigmoid is applied. The settings or the model's files must
  declare this form.

The shape [b, nc, 1, 1] is decoded in the same way.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.layouts.layout import (
    FEATURES,
    GraphView,
    Layout,
    Match,
    Output,
    are_probabilities,
    sigmoid,
    softmax,
)
from metadata.model import Origin
from tasks.inference.error import model_failed
from tasks.task import TaskType

_PROBABILITIES, _LOGITS, _MULTI_LABEL = _NAMES = ("probabilities", "logits", "multi-label")


def _recognise(view: GraphView) -> Match | None:
    outputs = view.outputs_named(_LOGITS) or view.outputs
    if len(outputs) != 1:
        return None
    (output,) = outputs
    if FEATURES.search(output.name.lower()) and view.declared_task is None and view.declared_layout is None:
        return None
    if (
        not output.is_float
        or output.blank.ndim not in (2, 4)
        or output.shape[1] < 1
        or any(side != 1 for side in output.shape[2:])
    ):
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


def _score_form(output: Output, view: GraphView) -> tuple[str, Origin]:
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


CLASSES = Layout(_NAMES, (TaskType.IMAGE_CLASSIFICATION,), "[b, nc]", _recognise, ((2,),))
