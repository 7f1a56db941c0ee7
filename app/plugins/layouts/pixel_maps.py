"""Decode segmentation of a grid of cells: the foreground, or one class for each cell.

- ``semantic``: [b, nc, h, w] class scores, as transformers exports them. They are logits or probabilities, as the
  output's name or its values show. The grid is enlarged bilinearly to the size of the image, and each pixel gets its
  best class, as in ``post_process_semantic_segmentation``. Each class that is the best in any cell becomes one object.
  Its score is its mean probability over the cells where it is the best.
- ``class-map``: class numbers [b, h, w] or [b, 1, h, w]. Ultralytics' ``semantic`` models return them as uint8. There
  are no probabilities, so every class scores 1. Each pixel of the image gets the class of the cell at its centre. With
  a single label, 1 is that class and 0 is the rest.
- ``mask`` and ``mask-logits``: [b, 1, h, w], the foreground of a U-Net, U2-Net, ISNet or a matting network, as values
  in 0..1 or as logits. Cells over 0.5, or 0, are the object. Graphs may return smaller masks of deeper layers, and
  feature maps, which are left out: the mask is the largest output with one channel, and the first of these. Outputs in
  0..1, or named logits, precede the others. The mask is enlarged bilinearly to the size of the image. The object's
  score is the mean of its probability.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import ImageInputs, RawOutputs
from app.core.runtimes.onnxruntime.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, ONES, STRETCHED, ZEROS
from app.core.runtimes.onnxruntime.layouts.candidates import ALL_NAN
from app.core.runtimes.onnxruntime.layouts.layout import (
    GraphOutput,
    GraphView,
    Layout,
    Match,
    RawSegments,
    are_probabilities,
    sigmoid,
    softmax,
)
from app.core.runtimes.onnxruntime.mask_grid import MaskGrid
from metadata.model import Fact, Origin
from tasks.image_segmentation import SegmentationInput
from tasks.inference.error import model_failed
from tasks.task import TaskType
from tasks.vision.contours import Contour, contours_of_mask
from tasks.vision.image import ScoredTile

_MASK, _MASK_LOGITS = _MASK_NAMES = ("mask", "mask-logits")
_SEMANTIC, _CLASS_MAP = "semantic", "class-map"
_MIN_PROBABILITY = 0.05
"""A class that is less likely in every cell of a tile is left out of the average of tiles."""
_MAX_CLASSES = 1000
"""A map with more distinct numbers is not a class map, and extracting its contours would take too long."""


def _planes_first(output: GraphOutput, inputs: ImageInputs) -> GraphOutput:
    """Return an output [b, h, w, k] of a graph with channels last as [b, k, h, w]; others unchanged."""
    if not inputs.channels_last or output.blank.ndim != 4 or output.shape[3] > min(output.shape[1:3]):
        return output
    return GraphOutput(name=output.name, blank=output.blank.transpose(0, 3, 1, 2))


def _recognise_scores(view: GraphView) -> Match | None:
    # torchvision's segmenters also return the result of an auxiliary head, which only training uses.
    is_torchvision = {output.name for output in view.outputs} == {"out", "aux"}
    outputs = view.outputs_named("out" if is_torchvision else "logits") or view.outputs
    is_requested = view.declared_task is TaskType.IMAGE_SEGMENTATION or view.declared_layout == _SEMANTIC
    if not (is_requested or is_torchvision) or len(outputs) != 1:
        return None
    output = _planes_first(outputs[0], view.inputs)
    if not output.is_float or output.blank.ndim != 4 or output.shape[1] < 2 or not output.blank.size:
        return None
    named_logits = "logit" in output.name.lower()
    logits = named_logits or not are_probabilities(output.blank)
    form = "logits, the server applies softmax" if logits else "probabilities"
    return Match(
        layout=_SEMANTIC,
        task_type=TaskType.IMAGE_SEGMENTATION,
        decode=partial(_outline, logits=logits, channels_last=output is not outputs[0]),
        outputs=outputs,
        by_names=is_torchvision,
        classes=output.shape[1],
        preprocessing=msgspec.structs.replace(STRETCHED, mean=IMAGENET_MEAN, std=IMAGENET_STD, origin=Origin.GUESSED),
        facts=(Fact("scores", form, Origin.MODEL_FILE if named_logits else Origin.SHAPES),),
    )


def _outline(answer: RawOutputs, item: SegmentationInput, *, logits: bool, channels_last: bool) -> RawSegments:
    grid = _grid(answer, channels_last=channels_last)
    if isinstance(item.image, ScoredTile):
        return _scored(grid, softmax(grid.planes) if logits else grid.planes)
    best = grid.planes.argmax(axis=0)
    class_ids, scores = _scores(softmax(grid.planes) if logits else grid.planes, best)
    selected = scores >= item.floor
    # Compare all classes, also those below the threshold: their pixels must not fall to the next best class.
    grid.planes = grid.planes[class_ids]
    contours = _class_contours(grid.highest_planes(), np.flatnonzero(selected))
    return RawSegments(class_ids=class_ids[selected], scores=scores[selected], contours=contours)


def _scored(grid: MaskGrid, probabilities: NDArray[np.float32]) -> RawSegments:
    """Return the probabilities of a tile's pixels, of the classes that may be the best in some pixel."""
    class_ids = np.flatnonzero(probabilities.reshape(len(probabilities), -1).max(axis=1) >= _MIN_PROBABILITY)
    grid.planes = probabilities[class_ids]
    planes = [grid.enlarged(number) for number in range(len(class_ids))]
    return RawSegments(
        class_ids=class_ids,
        scores=np.ones(len(class_ids), np.float32),
        contours=[()] * len(class_ids),
        pixel_scores=np.array(planes, np.float32),
    )


def _grid(answer: RawOutputs, *, channels_last: bool) -> MaskGrid:
    """Return the first output as planes, with 0 for NaN. Raise MODEL_FAILED if all values are NaN."""
    values: NDArray[np.float32] = answer.outputs[0]
    if np.isnan(values).all():
        raise model_failed(ALL_NAN)
    return MaskGrid(np.nan_to_num(values.transpose(2, 0, 1) if channels_last else values), answer)


def _class_contours(numbers: NDArray[np.integer[Any]], class_ids: NDArray[np.intp]) -> list[list[Contour]]:
    """Return the contours of the classes `class_ids`, in order, from a (height, width) map of class numbers."""
    return [contours_of_mask((numbers == number).astype(np.uint8)) for number in class_ids.tolist()]


def _scores(probabilities: NDArray[np.float32], best: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the classes that are the best in any cell, and their mean probability over these cells."""
    counts = np.bincount(best.ravel(), minlength=len(probabilities))
    highest = np.take_along_axis(probabilities, best[np.newaxis], axis=0)
    sums = np.bincount(best.ravel(), weights=highest.ravel(), minlength=len(probabilities))
    class_ids = np.flatnonzero(counts)
    return class_ids, (sums[class_ids] / counts[class_ids]).astype(np.float32)


def _recognise_class_map(view: GraphView) -> Match | None:
    if len(view.outputs) != 1:
        return None
    (output,) = view.outputs
    flat = output.blank.ndim == 3 or (output.blank.ndim == 4 and output.shape[1] == 1)
    if output.blank.dtype.kind not in "iu" or not flat or not output.blank.size:
        return None
    if view.declared_task is None and view.declared_layout is None and not _covers_image(output, view):
        return None
    facts = [Fact("scores", "1 for each class found, because the graph gives no probabilities", Origin.SHAPES)]
    has_rest = view.classes == 1
    if has_rest:
        facts.append(Fact("class numbers", "1 is the class, 0 is the rest, left out", Origin.CONVENTION))
    return Match(
        layout=_CLASS_MAP,
        task_type=TaskType.IMAGE_SEGMENTATION,
        outputs=view.outputs,
        decode=partial(_outline_class_map, has_rest=has_rest),
        facts=facts,
    )


def _covers_image(output: GraphOutput, view: GraphView) -> bool:
    """Return whether the last two dimensions of an output have the proportions of the input."""
    (rows, columns), (height, width) = output.shape[-2:], view.size
    return rows * width == columns * height


def _outline_class_map(answer: RawOutputs, item: SegmentationInput, *, has_rest: bool) -> RawSegments:
    del item
    numbers: NDArray[np.integer[Any]] = answer.outputs[0].reshape(answer.outputs[0].shape[-2:])
    placement = answer.placement
    rows = _pixel_cells(placement.image_height, placement.scale_y, placement.offset_y, answer.height, numbers.shape[0])
    columns = _pixel_cells(placement.image_width, placement.scale_x, placement.offset_x, answer.width, numbers.shape[1])
    class_ids = np.unique(numbers[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]).astype(np.intp)
    if len(class_ids) > _MAX_CLASSES:
        raise model_failed(f"The model returned {len(class_ids)} class numbers for one image, more than {_MAX_CLASSES}")
    if has_rest:
        class_ids = class_ids[class_ids != 0]
    contours = _class_contours(numbers[rows][:, columns], class_ids)
    return RawSegments(class_ids=class_ids - has_rest, scores=np.ones(len(class_ids), np.float32), contours=contours)


def _pixel_cells(pixels: int, scale: float, offset: float, side: int, cells: int) -> NDArray[np.intp]:
    """Return (pixels,) indices: the cell at the centre of each pixel of an image, along one axis.

    The image begins at `offset` in the input, of `side` pixels, with `scale` input pixels for each of its own. The map
    has `cells`.
    """
    indices = np.floor(((np.arange(pixels) + 0.5) * scale + offset) * cells / side).astype(np.intp)
    return np.clip(indices, 0, cells - 1)


def _recognise_mask(view: GraphView) -> Match | None:
    is_requested = view.declared_task is TaskType.IMAGE_SEGMENTATION or view.declared_layout in _MASK_NAMES
    if not is_requested or not all(output.is_float and output.blank.ndim == 4 for output in view.outputs):
        return None
    output = _likely_mask(view, view.outputs)
    if output is None:
        return None
    if len(view.outputs) > 1 and view.declared_layout is None and _recognise_scores(view) is not None:
        # Its other outputs accompany the scores of classes.
        return None
    layout, origin = _mask_form(output, view.declared_layout)
    keras = view.inputs.channels_last
    channels_last = _planes_first(output, view.inputs) is not output
    return Match(
        layout=layout,
        task_type=TaskType.IMAGE_SEGMENTATION,
        decode=partial(_outline_mask, logits=layout == _MASK_LOGITS, channels_last=channels_last),
        outputs=(output,),
        origin=origin,
        classes=1,
        names=("foreground",),
        preprocessing=msgspec.structs.replace(
            STRETCHED,
            mean=ZEROS if keras else IMAGENET_MEAN,
            std=ONES if keras else IMAGENET_STD,
            origin=Origin.GUESSED,
        ),
    )


def _likely_mask(view: GraphView, maps: Sequence[GraphOutput]) -> GraphOutput | None:
    """Return the largest of the [b, 1, h, w] maps that can be a mask, or else the largest; None without such a map."""
    masks = [output for output in maps if _planes_first(output, view.inputs).shape[1] == 1 and output.blank.size]
    # A feature map with one channel usually has values outside 0..1, even for a black image.
    return max(masks, key=lambda mask: (_is_mask_like(mask, view.declared_layout), mask.blank.size), default=None)


def _is_mask_like(output: GraphOutput, declared_layout: str | None) -> bool:
    """Return whether the name or the values of an output show that it can be a mask of `declared_layout`."""
    return declared_layout == _MASK_LOGITS or "logit" in output.name.lower() or _is_normalised(output)


def _is_normalised(output: GraphOutput) -> bool:
    values: NDArray[Any] = output.blank
    return bool(((values >= 0) & (values <= 1)).all())


def _mask_form(output: GraphOutput, declared_layout: str | None) -> tuple[str, Origin]:
    if declared_layout in _MASK_NAMES:
        return declared_layout, Origin.DECLARED
    if "logit" in output.name.lower():
        return _MASK_LOGITS, Origin.MODEL_FILE
    return (_MASK if _is_normalised(output) else _MASK_LOGITS), Origin.GUESSED


def _outline_mask(answer: RawOutputs, item: SegmentationInput, *, logits: bool, channels_last: bool) -> RawSegments:
    grid = _grid(answer, channels_last=channels_last)
    probabilities = sigmoid(grid.planes[0]) if logits else np.clip(grid.planes[0], 0, 1)
    if isinstance(item.image, ScoredTile):
        return _scored(grid, probabilities[np.newaxis])
    if not logits:
        grid.planes = grid.planes - np.float32(0.5)
    contours = grid.plane_contours(0)
    # The probability of a tiny logit over 0 is rounded to 0.5.
    score = float(probabilities[grid.planes[0] > 0].mean()) if contours else 0.0
    found = int(bool(contours) and score >= item.floor)
    return RawSegments(
        class_ids=np.zeros(found, np.intp), scores=np.full(found, score, np.float32), contours=[contours][:found]
    )


_TASKS = (TaskType.IMAGE_SEGMENTATION,)
LAYOUTS = (
    Layout((_SEMANTIC,), _TASKS, "[b, nc, h, w]", _recognise_scores),
    Layout(_MASK_NAMES, _TASKS, "[b, 1, h, w]", _recognise_mask),
    Layout((_CLASS_MAP,), _TASKS, "integers [b, h, w]", _recognise_class_map),
)
