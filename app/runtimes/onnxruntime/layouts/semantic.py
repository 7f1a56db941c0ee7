"""Decode semantic segmentation as transformers exports it: [b, nc, h, w] class scores of each cell of a grid.

The scores are logits or probabilities, as the output's name or its values show. The grid is enlarged bilinearly to the
size of the image, and each pixel gets its best class, as in ``post_process_semantic_segmentation``. Each class that is
the best in any cell becomes one object. Its score is its mean probability over the cells where it is the best.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.models.model_metadata import Fact, Origin
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, PartialPreprocessing
from app.runtimes.onnxruntime.layouts.layout import (
    Certainty,
    GraphView,
    Layout,
    MaskDecoder,
    Match,
    Outline,
    planes_first,
)
from app.runtimes.onnxruntime.mask_grid import MaskGrid
from tasks.image_segmentation import SegmentationInput
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import TaskType
from tasks.vision.contours import Contour, contours_of_mask

__all__ = ("SEMANTIC", "class_contours")

_NAME = "semantic"
_SUM_TOLERANCE = 1e-3


def _recognise(view: GraphView) -> Match | None:
    # torchvision's segmenters also return the result of an auxiliary head, which only training uses.
    is_torchvision = {output.name for output in view.outputs} == {"out", "aux"}
    outputs = view.outputs_named("out" if is_torchvision else "logits") or view.outputs
    is_requested = view.declared_task is TaskType.IMAGE_SEGMENTATION or view.declared_layout == _NAME
    if not (is_requested or is_torchvision) or len(outputs) != 1:
        return None
    output = planes_first(outputs[0], view.inputs)
    if not output.is_float or output.blank.ndim != 4 or output.shape[1] < 2 or not output.blank.size:
        return None
    named_logits = "logit" in output.name.lower()
    logits = named_logits or not _are_probabilities(output.blank)
    form = "logits, the server applies softmax" if logits else "probabilities"
    return Match(
        layout=_NAME,
        task_type=TaskType.IMAGE_SEGMENTATION,
        decoder=MaskDecoder(partial(_outline, logits=logits, channels_last=output is not outputs[0])),
        outputs=outputs,
        certainty=Certainty.NAMES if is_torchvision else Certainty.SHAPES,
        classes=output.shape[1],
        preprocessing_defaults=PartialPreprocessing(
            resize="stretch",
            interpolation="bilinear",
            antialias=True,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            channel_order="RGB",
            origin=Origin.GUESSED,
        ),
        facts=(
            Fact("scores", form, Origin.MODEL_FILE if named_logits else Origin.SHAPES),
            *([Fact("further output", "aux, left out", Origin.CONVENTION)] if is_torchvision else []),
        ),
    )


def _outline(answer: RawOutputs, item: SegmentationInput, *, logits: bool, channels_last: bool) -> Outline:
    if np.isnan(answer.outputs[0]).all():
        raise InferenceError(ErrorKind.MODEL_FAILED, "The model returned scores that are all NaN")
    planes: NDArray[np.float32] = np.nan_to_num(answer.outputs[0])
    grid = MaskGrid(
        planes.transpose(2, 0, 1) if channels_last else planes, answer.placement, answer.height, answer.width
    )
    best = grid.planes.argmax(axis=0)
    class_ids, scores = _scores(_softmax(grid.planes) if logits else grid.planes, best)
    selected = scores >= item.parameters.score_threshold
    # Compare all classes, also those below the threshold: their pixels must not fall to the next best class.
    grid.planes = grid.planes[class_ids]
    contours = class_contours(grid.highest_planes(), np.flatnonzero(selected))
    return Outline(class_ids=class_ids[selected], scores=scores[selected], contours=contours)


def class_contours(numbers: NDArray[np.integer[Any]], class_ids: NDArray[np.intp]) -> list[list[Contour]]:
    """Return the contours of the classes `class_ids`, in order, from a (height, width) map of class numbers."""
    return [contours_of_mask((numbers == number).astype(np.uint8)) for number in class_ids.tolist()]


def _are_probabilities(blank: NDArray[np.floating[Any]]) -> bool:
    """Return whether (b, nc, rows, columns) values sum to 1 over the classes."""
    values = blank.astype(np.float64)
    return bool((values >= 0).all() and (np.abs(values.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())


def _softmax(planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Convert (nc, rows, columns) logits to probabilities."""
    powers = np.exp(planes - planes.max(axis=0))
    return powers / powers.sum(axis=0)


def _scores(probabilities: NDArray[np.float32], best: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the classes that are the best in any cell, and their mean probability over these cells."""
    counts = np.bincount(best.ravel(), minlength=len(probabilities))
    highest = np.take_along_axis(probabilities, best[np.newaxis], axis=0)
    sums = np.bincount(best.ravel(), weights=highest.ravel(), minlength=len(probabilities))
    class_ids = np.flatnonzero(counts)
    return class_ids, (sums[class_ids] / counts[class_ids]).astype(np.float32)


SEMANTIC = Layout(
    names=(_NAME,), task_types=(TaskType.IMAGE_SEGMENTATION,), expected_outputs="[b, nc, h, w]", recognise=_recognise
)
