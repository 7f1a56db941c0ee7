"""The output layout of JATIC_ONNX v1, as modelmaite's ``OnnxICModel`` and ``OnnxODModel`` decode it.

- IMAGE_CLASSIFICATION: ``scores`` [b, nc], probabilities.
- OBJECT_DETECTION: ``boxes`` [b, N, 4], xyxy as fractions of the input, and ``scores`` [b, N, nc]. The class of a box
  is the one with the highest score; unused boxes have the score 0. The graph suppresses duplicates.

Images are stretched bilinearly without antialiasing, as floats in 0..1.
"""

from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.label_files import BACKGROUNDS
from app.core.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.core.runtimes.onnxruntime.heads import HEADS
from app.core.runtimes.onnxruntime.images.preprocessing import BYTE, ONES, ZEROS, OwnSize, PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.candidates import Candidates, best_of_rows
from app.core.runtimes.onnxruntime.layouts.layout import Bound, GraphOutput, GraphView, Layout, Match
from app.plugins.jatic.contract import LAYOUT, NAME, VERSION, Contract, describe
from metadata.model import Fact, Origin
from tasks.inference.error import model_failed
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.task import TaskType

_TOLERANCE = 1e-6
"""By which modelmaite lets scores and boxes exceed 0..1."""

PREPROCESSING = PartialPreprocessing(
    origin=Origin.MODEL_FILE,
    resize="stretch",
    interpolation="bilinear",
    antialias=False,
    resizes_floats=True,
    scale=BYTE,
    mean=ZEROS,
    std=ONES,
    channel_order="RGB",
)


def _recognise(view: GraphView) -> Match | None:
    contract = view.model_files.metadata.contract
    if not isinstance(contract, Contract):
        return None
    outputs = view.outputs_named(*contract.task.outputs)
    if outputs is None:
        return None
    classes = _check_outputs(view, contract, outputs)
    settings, size = view.model_files.settings, contract.metadata.io.batch_size
    facts = [Fact("metadata", f"{NAME} {VERSION} in {contract.file.name}", Origin.MODEL_FILE)]
    if size != -1:
        facts.append(Fact("images in a call", f"at most {size}", Origin.MODEL_FILE))
    background: list[int] = []
    if contract.task.task_type is TaskType.OBJECT_DETECTION:
        labels = view.model_files.labels
        background = [index for index, name in enumerate(labels[0] if labels else ()) if name.lower() in BACKGROUNDS]
        facts += [Fact("background", f"class {index}, left out", Origin.MODEL_FILE) for index in background]
        if "score_threshold" not in settings.parameters:
            default = f"{DetectionParameters().score_threshold:g} by default; MAITE's tools have none"
            facts.append(Fact("score threshold", default, Origin.CONVENTION))
    return Match(
        layout=LAYOUT,
        task_type=contract.task.task_type,
        outputs=outputs,
        decode=partial(_find, background=background) if len(outputs) > 1 else _scores,
        by_names=True,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        head=partial(_bind, max_images=size),
        classes=classes,
        preprocessing=msgspec.structs.replace(
            PREPROCESSING,
            dynamic_size=OwnSize(height=contract.sides[0], width=contract.sides[1]) if -1 in contract.sides else None,
        ),
        facts=facts,
    )


def _bind(graph: ImageGraph, match: Match, labels: Sequence[str], *, max_images: int) -> Bound:
    if max_images != -1:
        graph.max_images = min(graph.max_images, max_images)
    return HEADS[match.task_type](graph, match, labels)


def _check_outputs(view: GraphView, contract: Contract, outputs: Sequence[GraphOutput]) -> int:
    """Return the number of classes. Raise ModelError if shapes or values of the outputs contradict the contract."""
    scores, declared, file = outputs[-1], contract.metadata.io.output, contract.file.name
    expected = "[batch, classes]" if len(outputs) == 1 else "[batch, boxes, classes]"
    if not scores.is_float or scores.blank.ndim != len(outputs) + 1 or scores.shape[-1] < 1:
        raise view.model_files.error(f"its output scores is {list(scores.shape)}, but {NAME} expects {expected}")
    classes = scores.shape[-1]
    if declared.n_classes not in (None, classes):
        raise view.model_files.error(f"its scores have {classes} classes, but {file} declares {declared.n_classes}")
    if not _within_unit(scores.blank):
        raise view.model_files.error(
            f"its scores for a black image are {_range(scores.blank)}, but {NAME} expects probabilities in 0..1; put "
            "the softmax or sigmoid into the graph"
        )
    for boxes in outputs[:-1]:
        count = scores.shape[1]
        if not boxes.is_float or boxes.shape != (*scores.shape[:2], 4):
            raise view.model_files.error(
                f"its output boxes is {list(boxes.shape)}, but {NAME} expects [batch, boxes, 4] for {count} scores"
            )
        if declared.n_boxes not in (None, count):
            raise view.model_files.error(f"it returns {count} boxes, but {file} declares {declared.n_boxes}")
        if not _within_unit(boxes.blank):
            raise view.model_files.error(
                f"its boxes for a black image are {_range(boxes.blank)}, but {NAME} expects fractions of the input, "
                "0..1; divide them by its sides in the graph"
            )
    return classes


def _within_unit(values: NDArray[np.floating]) -> bool:
    """Return whether all values are within 0..1; NaN is not."""
    return bool(((values >= -_TOLERANCE) & (values <= 1 + _TOLERANCE)).all())


def _range(values: NDArray[np.floating]) -> str:
    return f"{values.min():.4g} to {values.max():.4g}"


def _scores(answer: RawOutputs) -> NDArray[np.float32]:
    (scores,) = answer.outputs
    if not _within_unit(scores):
        raise model_failed(f"The model returned scores of {_range(scores)}; {NAME} expects probabilities in 0..1")
    return scores.clip(0, 1)


def _find(answer: RawOutputs, item: DetectionInput, *, background: Sequence[int]) -> Candidates:
    boxes, scores = answer.outputs
    is_background = np.isin(scores.argmax(axis=1), background)
    sides = np.array([answer.width, answer.height] * 2, np.float32)
    found = best_of_rows(boxes * sides, np.where(is_background[:, np.newaxis], 0, scores), item.floor, len(boxes))
    return msgspec.structs.replace(found, scores=found.scores.clip(0, 1))


LAYOUTS = (
    Layout(
        (LAYOUT,),
        (TaskType.IMAGE_CLASSIFICATION, TaskType.OBJECT_DETECTION),
        f"scores, and boxes of detectors, with a {NAME} file beside the graph",
        _recognise,
        describe,
    ),
)
