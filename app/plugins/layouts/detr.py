"""Decode DETR models with one row for each query. Boxes are cx, cy, w, h as fractions of the input.

Models of transformers (``post_process_object_detection`` of each model's image processor) have ``logits`` [b, N, slots]
and ``pred_boxes`` [b, N, 4]. The logits have one of two forms, which shapes do not distinguish:

- ``detr``: softmax over the slots, where the last slot means no object; the result is the best class of each query.
- ``detr-sigmoid``: independent slots; the result is the best pairs of query and class.

RF-DETR as its own project exports it (``rfdetr/export`` and ``rfdetr/models/postprocess.py``) has another layout:

- ``rf-detr``: ``dets`` [b, N, 4], ``labels`` [b, N, slots], logits of independent classes, and optionally ``masks``
  [b, N, h, w], also logits, or ``keypoints`` [b, N, K, 3 or more] of one class: x and y as fractions, and the logit of
  their visibility. If there is one slot more than labels, the last slot is the background. Images are stretched, RGB,
  and normalised with the ImageNet statistics.
"""

from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata, read_metadata
from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.images.preprocessing import (
    BYTE,
    IMAGENET_MEAN,
    IMAGENET_STD,
    STRETCHED,
    pillow_filter,
)
from app.core.runtimes.onnxruntime.layouts.candidates import Candidates, best_indices, best_of_rows
from app.core.runtimes.onnxruntime.layouts.layout import (
    GraphOutput,
    GraphView,
    Layout,
    Match,
    RawSegments,
    sigmoid,
    softmax,
)
from app.core.runtimes.onnxruntime.mask_grid import MaskGrid
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelError, ModelSource
from metadata.model import Fact, Origin
from tasks.image_segmentation import SegmentationInput
from tasks.object_detection import DetectionInput
from tasks.task import TaskType
from tasks.vision.filtering import xywh_to_xyxy

_SOFTMAX, _SIGMOID, _RF_DETR = "detr", "detr-sigmoid", "rf-detr"
_COORDINATES = 3
"""x, y and visibility."""
_EXPECTED = "logits [b, N, slots] and pred_boxes [b, N, 4]"


_LAYOUTS_BY_MODEL_TYPE = {
    **dict.fromkeys(("detr", "table-transformer", "yolos"), _SOFTMAX),
    **dict.fromkeys(
        ("conditional_detr", "dab-detr", "d_fine", "deformable_detr", "lw_detr", "rf_detr", "rt_detr", "rt_detr_v2"),
        _SIGMOID,
    ),
}
"""By ``model_type`` in config.json."""


_KEY = "rfdetr_inference"
"""``METADATA_KEY`` of ``rfdetr/export/_runtime/metadata.py``."""


class RfDetrMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of the JSON object. The numbers of the classes have the gaps of the training data."""

    class_id_to_name: dict[int, str] = {}
    means: tuple[float, float, float] | None = None
    stds: tuple[float, float, float] | None = None
    resize_interpolation: str | None = None
    resize_antialias: bool | None = None


def _describe(source: ModelSource, session: GraphSession) -> ExportMetadata | None:
    """Return the metadata of a graph with such an object, their `contract`. Raise ModelError if it cannot be read."""
    del source
    text = session.metadata.get(_KEY)
    if text is None:
        return None
    try:
        contract = msgspec.json.decode(text, type=RfDetrMetadata)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ModelError(f"{session.file}: metadata {_KEY!r} cannot be read: {error}") from None
    names = tuple(contract.class_id_to_name[number] for number in sorted(contract.class_id_to_name))
    known = read_metadata(session.file, session.metadata)
    return msgspec.structs.replace(
        known,
        names=known.names or names or None,
        interpolation=known.interpolation or pillow_filter(contract.resize_interpolation),
        antialias=contract.resize_antialias if known.antialias is None else known.antialias,
        contract=contract,
    )


def _are_queries(boxes: GraphOutput, logits: GraphOutput) -> bool:
    """Return whether the outputs are boxes and scores of the same queries."""
    return logits.blank.ndim == 3 and logits.is_float and boxes.is_float and boxes.shape == (*logits.shape[:2], 4)


def _recognise(view: GraphView, *, name: str) -> Match | None:
    outputs = view.outputs_named("pred_boxes", "logits")
    if outputs is None or not _are_queries(*outputs):
        return None
    is_softmax = name == _SOFTMAX
    classes = outputs[1].shape[2] - is_softmax
    if classes < 1:
        return None
    known_layout = _LAYOUTS_BY_MODEL_TYPE.get(view.model_files.folder.model_type)
    if view.declared_layout is None and (known_layout or name) != name:
        return None
    if view.declared_layout is None and known_layout is None and view.classes not in (None, classes):
        return None
    return Match(
        layout=name,
        task_type=TaskType.OBJECT_DETECTION,
        decode=_decode_best_class if is_softmax else _decode_pairs,
        outputs=outputs,
        by_names=True,
        origin=Origin.SHAPES if known_layout is None else Origin.CONFIG,
        classes=classes,
        preprocessing=msgspec.structs.replace(STRETCHED, mean=IMAGENET_MEAN, std=IMAGENET_STD)
        if is_softmax
        else STRETCHED,
    )


def _recognise_rf_detr(view: GraphView) -> Match | None:
    outputs = view.outputs_named("dets", "labels")
    if outputs is None:
        return None
    boxes, logits = outputs
    masks, points = view.outputs_named("masks") or [], view.outputs_named("keypoints") or []
    if not _are_queries(boxes, logits) or logits.shape[2] < 1:
        return None
    for mask in masks:
        if not mask.is_float or mask.blank.ndim != 4 or mask.shape[:2] != logits.shape[:2] or not mask.blank.size:
            return None
    slots, contract = logits.shape[2], view.model_files.metadata.contract
    metadata = contract if isinstance(contract, RfDetrMetadata) else None
    named_classes = sorted(metadata.class_id_to_name) if metadata else []
    has_named_classes = (
        bool(named_classes)
        and view.classes == len(named_classes)
        and named_classes[0] >= 0
        and named_classes[-1] < slots
    )
    background = not has_named_classes and view.classes == slots - 1
    class_numbers = named_classes if has_named_classes else range(slots - background)
    # The keypoints of several classes follow each other, in numbers that the graph does not show.
    if (
        masks
        or (len(class_numbers) > 1 and (slots > 2 or view.classes))
        or not all(
            point.is_float
            and point.blank.ndim == 4
            and point.shape[:2] == boxes.shape[:2]
            and point.shape[2]
            and point.shape[3] >= _COORDINATES
            for point in points
        )
    ):
        points = []
    decode = _decode_masks if masks else _decode_poses if points else _decode_pairs
    fact = Fact("background", f"class {slots - 1} of {slots} in the output, left out", Origin.CONVENTION)
    return Match(
        layout=_RF_DETR,
        task_type=TaskType.IMAGE_SEGMENTATION if masks else TaskType.OBJECT_DETECTION,
        decode=partial(decode, class_numbers=class_numbers),
        outputs=[*outputs, *masks, *points],
        keypoints=(points[0].shape[2], _COORDINATES) if points else None,
        by_names=True,
        origin=Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        classes=len(class_numbers),
        preprocessing=msgspec.structs.replace(
            STRETCHED,
            # `predict` antialiased until version 1.11; since then it resizes as in training.
            antialias=False,
            resizes_floats=True,
            scale=BYTE,
            mean=(metadata.means if metadata else None) or IMAGENET_MEAN,
            std=(metadata.stds if metadata else None) or IMAGENET_STD,
        ),
        facts=(fact,) if background else (),
    )


def _decode_best_class(answer: RawOutputs, item: DetectionInput) -> Candidates:
    boxes, logits = answer.outputs
    corners = _fractions_to_xyxy(boxes, answer.width, answer.height)
    # The last slot means no object.
    return best_of_rows(corners, softmax(logits, axis=1)[:, :-1], item.floor, len(boxes))


def _decode_masks(answer: RawOutputs, item: SegmentationInput, *, class_numbers: Sequence[int]) -> RawSegments:
    candidates = _decode_pairs(answer, item, class_numbers=class_numbers)
    grid = MaskGrid(answer.outputs[2], answer)
    contours = [grid.plane_contours(query) for query in candidates.extras[:, 0].astype(int).tolist()]
    return RawSegments(class_ids=candidates.class_ids, scores=candidates.scores, contours=contours)


def _decode_poses(answer: RawOutputs, item: DetectionInput, *, class_numbers: Sequence[int]) -> Candidates:
    candidates = _decode_pairs(answer, item, class_numbers=class_numbers)
    points: NDArray[np.float32] = answer.outputs[2][candidates.extras[:, 0].astype(int), :, :_COORDINATES]
    points = points * np.array([answer.width, answer.height, 1], np.float32)
    points[..., 2] = sigmoid(points[..., 2])
    return msgspec.structs.replace(candidates, extras=points.reshape(len(points), -1)).finite()


def _decode_pairs(
    answer: RawOutputs, item: DetectionInput, *, class_numbers: Sequence[int] | None = None
) -> Candidates:
    """Return the best pairs of query and class, best first, as DETR models without suppression do.

    There are at most N pairs for N queries, with the query number in `extras`. `class_numbers` are the slots of the
    classes, by default all.
    """
    boxes, logits, *_ = answer.outputs
    logits = logits if class_numbers is None else logits[:, list(class_numbers)]
    boxes, scores = _fractions_to_xyxy(boxes, answer.width, answer.height), sigmoid(logits)
    # A query with an invalid box must not displace a valid one.
    flat = np.where(np.isfinite(boxes).all(axis=1, keepdims=True), scores, np.float32(0)).ravel()
    chosen = best_indices(flat, item.floor, len(logits))
    chosen = chosen[(-flat[chosen]).argsort(kind="stable")]
    queries, class_ids = np.divmod(chosen, max(scores.shape[1], 1))
    return Candidates(
        boxes=boxes[queries],
        scores=flat[chosen].astype(np.float32, copy=False),
        class_ids=class_ids,
        extras=queries[:, np.newaxis].astype(np.float32),
    )


def _fractions_to_xyxy(boxes: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """Convert (n, 4) boxes cx, cy, w, h as fractions of the input to xyxy in input pixels."""
    return xywh_to_xyxy(boxes) * np.array([width, height, width, height], np.float32)


LAYOUTS = (
    Layout(
        (_RF_DETR,),
        (TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION),
        "dets [b, N, 4], labels [b, N, slots], and masks [b, N, h, w] or keypoints [b, N, K, 3]",
        _recognise_rf_detr,
        _describe,
    ),
    *(
        Layout((name,), (TaskType.OBJECT_DETECTION,), _EXPECTED, partial(_recognise, name=name))
        for name in (_SOFTMAX, _SIGMOID)
    ),
)
