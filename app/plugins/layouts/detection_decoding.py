"""Decode the outputs of a detector, boxes, scores and classes, as a `Reading` describes them."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import RawOutputs
from app.core.runtimes.onnxruntime.layouts.candidates import Candidates, best_indices, best_of_rows
from app.core.runtimes.onnxruntime.layouts.layout import RawSegments, sigmoid, softmax
from app.core.runtimes.onnxruntime.mask_grid import MaskGrid
from app.plugins.layouts.detection_conventions import Convention, pair_scores
from tasks.image_segmentation import SegmentationInput
from tasks.object_detection import DetectionInput
from tasks.vision.contours import Contour
from tasks.vision.filtering import clip_boxes, xywh_to_xyxy

_BOX = 4


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How the decoded outputs are read.

    Attributes:
        roles: the role of each output, in order.
        background: the class that is never returned.
        skipped: the class that the labels leave out, so that higher numbers decrease by one.
        points: number of keypoints of each object, and of numbers for each.
    """

    roles: tuple[str, ...]
    convention: Convention
    background: int | None
    skipped: int | None
    points: tuple[int, int] | None = None


def find_objects(answer: RawOutputs, item: DetectionInput, *, reading: Reading) -> Candidates:
    """Return the objects of a graph that has suppressed duplicates; `extras` are keypoints, or else row numbers."""
    tensors = dict(zip(reading.roles, answer.outputs, strict=True))
    boxes, scores, classes, points = _columns(tensors, reading)
    count = int(np.nan_to_num(tensors["count"].reshape(-1)[0])) if "count" in tensors else len(scores)
    valid = (np.arange(len(scores)) < count) & (classes >= 0) & (classes != reading.background)
    chosen = best_indices(np.where(valid, scores, 0), item.floor, len(scores))
    extras = chosen[:, np.newaxis] if points is None else points.reshape(len(scores), -1)[chosen]
    class_ids = classes[chosen]
    if reading.skipped is not None:
        class_ids = class_ids - (class_ids > reading.skipped)
    return Candidates(
        boxes=_to_xyxy(boxes[chosen], reading.convention, answer),
        scores=scores[chosen].astype(np.float32, copy=False),
        class_ids=class_ids,
        extras=extras.astype(np.float32, copy=False),
    ).finite()


def _columns(
    tensors: Mapping[str, NDArray[Any]], reading: Reading
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.intp], NDArray[Any] | None]:
    """Return the boxes (N, 4), scores (N,), class numbers (N,) and keypoints of one image."""
    points = tensors.get("keypoints")
    if "rows" in tensors:
        rows = tensors["rows"]
        columns = rows if rows.shape[1] == _BOX + 2 else rows[:, 1:]
        if reading.points is not None:
            return columns[:, :_BOX], columns[:, _BOX], np.zeros(len(rows), np.intp), columns[:, _BOX + 1 :]
        order = reading.convention.rows
        first = 2 if order == "class-score-box" else 0
        score, number = {"box-score-class": (4, 5), "box-class-score": (5, 4)}.get(order or "", (1, 0))
        boxes, scores, classes = columns[:, first : first + _BOX], columns[:, score], columns[:, number]
    elif "dets" in tensors:
        boxes, scores, classes = tensors["dets"][:, :_BOX], tensors["dets"][:, _BOX], tensors["classes"]
    else:
        boxes, scores = tensors["boxes"], tensors["scores"]
        classes = tensors.get("classes", np.zeros(len(scores), np.intp))
    numbers = np.nan_to_num(classes.reshape(-1), nan=-1).astype(np.intp)
    return boxes.reshape(-1, _BOX), scores.reshape(-1), numbers, points


def find_candidates(answer: RawOutputs, item: DetectionInput, *, reading: Reading) -> Candidates:
    """Return the best candidates, each with its best class, after suppression."""
    tensors = dict(zip(reading.roles, answer.outputs, strict=True))
    boxes = tensors["boxes"].reshape(-1, _BOX)
    scores = pair_scores(tensors["scores"], len(boxes))
    if reading.convention.scores != "probabilities":
        scores = softmax(scores, axis=1) if reading.convention.scores == "softmax" else sigmoid(scores)
    numbers = np.array([number for number in range(scores.shape[1]) if number != reading.background], np.intp)
    found = best_of_rows(boxes, scores[:, numbers], item.floor)
    corners = _to_xyxy(found.boxes, reading.convention, answer)
    class_ids = numbers[found.class_ids] if reading.skipped is None else found.class_ids
    return msgspec.structs.replace(found, boxes=corners, class_ids=class_ids).finite().suppress(item.parameters)


def _to_xyxy(boxes: NDArray[Any], convention: Convention, answer: RawOutputs) -> NDArray[np.float32]:
    """Convert (N, 4) boxes to xyxy in input pixels."""
    values: NDArray[np.float32] = boxes.astype(np.float32, copy=False)
    if convention.boxes == "yxyx":
        values = values[:, [1, 0, 3, 2]]
    elif convention.boxes == "xywh":
        values = np.concatenate([values[:, :2], values[:, :2] + values[:, 2:]], axis=1)
    elif convention.boxes == "cxcywh":
        values = xywh_to_xyxy(values)
    if convention.unit == "fraction":
        values = values * np.array([answer.width, answer.height] * 2, np.float32)
    return values


def outline(answer: RawOutputs, item: SegmentationInput, *, reading: Reading) -> RawSegments:
    """Return the objects with the contours of their masks, whose pixels are probabilities or booleans."""
    candidates = find_objects(answer, item, reading=reading)
    masks = answer.outputs[reading.roles.index("masks")]
    planes: NDArray[np.float32] = masks.reshape(len(masks), *masks.shape[-2:]).astype(np.float32) - np.float32(0.5)
    chosen = candidates.extras[:, 0].astype(np.intp).tolist()
    if planes.shape[1:] == (answer.height, answer.width):
        grid = MaskGrid(planes, answer)
        contours = [grid.plane_contours(index) for index in chosen]
    else:
        boxes = clip_boxes(answer.placement.boxes_to_image(candidates.boxes), item.image.width, item.image.height)
        contours = [
            _box_contours(planes[index], box, inside, answer)
            for index, box, inside in zip(chosen, candidates.boxes, boxes, strict=True)
        ]
    return RawSegments(class_ids=candidates.class_ids, scores=candidates.scores, contours=contours)


def _box_contours(
    plane: NDArray[np.float32], box: NDArray[np.float32], inside: NDArray[np.float32], answer: RawOutputs
) -> list[Contour]:
    """Return the contours of a mask (h, w) that covers a `box`, xyxy in input pixels; `inside` is it in image pixels.

    Outside of the box the mask is empty, which also lowers interpolated values at its border.
    """
    left, top, right, bottom = box.tolist()
    rows, columns = plane.shape
    across, down = (right - left) / columns, (bottom - top) / rows
    if min(across, down) <= 0:
        return []
    placement = msgspec.structs.replace(
        answer.placement,
        offset_x=answer.placement.offset_x - left + across,
        offset_y=answer.placement.offset_y - top + down,
    )
    padded = np.pad(plane, 1, constant_values=-0.5)[np.newaxis]
    frame = msgspec.structs.replace(answer, placement=placement, height=(rows + 2) * down, width=(columns + 2) * across)
    return MaskGrid(padded, frame).prototype_contours(np.ones(1, np.float32), inside)
