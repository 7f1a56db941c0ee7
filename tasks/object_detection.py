"""OBJECT_DETECTION: detect objects and their axis-aligned boxes."""

from collections.abc import Sequence
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.request import Fraction
from tasks.inference.tensor import Datatype, Tensor, TensorSpec, stack_labelled, stack_numbers
from tasks.saliency.probe import best_match, select_targets
from tasks.task import Model, TaskType
from tasks.vision.filtering import (
    MAX_BOXES,
    MAX_ORIENTED_BOXES,
    SCORE_DECIMALS,
    SelectionParameters,
    clip_boxes,
    ious,
    select,
    suppress_boxes,
    suppress_rotated_boxes,
)
from tasks.vision.request import ImageItem, ImageTask

PIXEL_DECIMALS = 4
"""Decimals of pixel coordinates: finer than the resolution of a 32-bit float in a large image."""

OBJECT_OUTPUTS = (
    TensorSpec(name="num_detections", datatype=Datatype.INT32, shape=(-1,)),
    TensorSpec(name="labels", datatype=Datatype.BYTES, shape=(-1, -1)),
    TensorSpec(name="scores", datatype=Datatype.FP32, shape=(-1, -1)),
)
"""The output tensors of all tasks with objects in images, besides their shapes."""


class DetectionParameters(SelectionParameters, frozen=True, kw_only=True):
    """Parameters of detection.

    Attributes:
        iou_threshold: the IoU threshold of non-maximum suppression. Models that suppress duplicates in their own graph
            ignore it unless `nms` is true.
        agnostic: whether suppression compares the objects of all classes, not only of one class.
        nms: whether suppression is also applied to models that need none or have their own, such as Python classes.
    """

    score_threshold: Fraction = 0.5
    iou_threshold: Fraction = 0.45
    agnostic: bool = False
    nms: bool = False


class DetectedObject(msgspec.Struct, frozen=True):
    """One object: pixels of the upright original image, x to the right, y down."""

    label: str
    score: float
    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def rings(self, width: int, height: int) -> list[NDArray[np.float64]]:
        """Return one ring with the (4, 2) corners in pixels."""
        del width, height
        left, top, right, bottom = self.xmin, self.ymin, self.xmax, self.ymax
        return [np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float64)]


class PosedObject(DetectedObject, frozen=True):
    """One object with its keypoints: x and y in pixels, and the visibility 0..1 if the model returns it."""

    keypoints: list[list[float]]


class Detections(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The objects of one image: N class names, and their `scores` (N,) float32, 0..1.

    `boxes` are (N, 4) float32: left, top, right, bottom in pixels of the upright original image. `keypoints` are (N, K,
    2 or 3) float32: x, y and visibility of K points, in the same pixels; None for models without.
    """

    labels: Sequence[str]
    scores: NDArray[np.float32]
    boxes: NDArray[np.float32]
    keypoints: NDArray[np.float32] | None = None

    def records(self) -> Sequence[DetectedObject]:
        """Return one `DetectedObject` for each box, in order; a `PosedObject` if the model returns keypoints."""
        scores = self.scores.astype(np.float64).round(SCORE_DECIMALS).tolist()
        boxes = self.boxes.astype(np.float64).round(PIXEL_DECIMALS).tolist()
        rows = zip(self.labels, scores, boxes, strict=True)
        if self.keypoints is None:
            return [DetectedObject(label, score, *box) for label, score, box in rows]
        poses = self.keypoints.astype(np.float64).round(PIXEL_DECIMALS).tolist()
        return [
            PosedObject(label, score, *box, keypoints=pose)
            for (label, score, box), pose in zip(rows, poses, strict=True)
        ]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return `num_detections` INT32 [N], `labels` BYTES [N, M], `scores` FP32 [N, M], `boxes` FP32 [N, M, 4].

        Models with keypoints add `keypoints` FP32 [N, M, K, 2 or 3], 0 for images without.
        """
        no_poses = np.zeros((0, 0, 0), np.float32)
        poses = [no_poses if prediction.keypoints is None else prediction.keypoints for prediction in predictions]
        return (
            *stack_labelled("num_detections", predictions),
            stack_numbers("boxes", [prediction.boxes for prediction in predictions]),
            *([stack_numbers("keypoints", poses)] if any(pose is not no_poses for pose in poses) else ()),
        )


def drop_duplicates(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], labels: Sequence[str], item: "DetectionInput"
) -> NDArray[np.float32]:
    """Return (N,) `scores`, NaN for the duplicates that non-maximum suppression finds, and for scores below the floor.

    `boxes` are (N, 4) xyxy, or (N, 5) cx, cy, w, h, r (radians), in pixels. Only the best boxes are compared, up to
    `MAX_BOXES` or `MAX_ORIENTED_BOXES`; the others are dropped.
    """
    oriented = boxes.shape[1:] == (5,)
    candidates = np.flatnonzero((scores >= item.floor) & np.isfinite(boxes).all(axis=1))
    order = (-scores[candidates]).argsort(kind="stable")
    candidates = candidates[order[: MAX_ORIENTED_BOXES if oriented else MAX_BOXES]]
    class_ids = np.unique(np.array(labels, object)[candidates], return_inverse=True)[1]
    suppress, parameters = suppress_rotated_boxes if oriented else suppress_boxes, item.parameters
    kept = suppress(
        boxes[candidates], scores[candidates], class_ids, parameters.iou_threshold, agnostic=parameters.agnostic
    )
    remaining = np.full(len(scores), np.nan, np.float32)
    remaining[candidates[kept]] = scores[candidates[kept]]
    return remaining


DetectionInput = ImageItem[DetectionParameters]
ObjectDetector = Model[DetectionInput, Detections]


class ObjectDetection(ImageTask[DetectionParameters, Detections]):
    """Return boxes clipped to the image, by descending score. Boxes outside the image are left out.

    Args:
        open_vocabulary: whether each request gives the classes as `candidate_labels`.
        keypoints: number of keypoints of each object, and of numbers for each; None without.
    """

    task_type = TaskType.OBJECT_DETECTION
    parameters_type = DetectionParameters
    outputs: Sequence[TensorSpec] = (
        *OBJECT_OUTPUTS,
        TensorSpec(name="boxes", datatype=Datatype.FP32, shape=(-1, -1, 4)),
    )

    def __init__(self, *, open_vocabulary: bool = False, keypoints: tuple[int, int] | None = None) -> None:
        super().__init__(open_vocabulary=open_vocabulary)
        if keypoints is not None:
            spec = TensorSpec(name="keypoints", datatype=Datatype.FP32, shape=(-1, -1, *keypoints))
            self.outputs = (*self.outputs, spec)

    def postprocess(self, item: DetectionInput, prediction: Detections, /) -> Detections:
        height, width = item.image.full_size or item.image.pixels.shape[:2]
        boxes = clip_boxes(prediction.boxes, width, height)
        scores = prediction.scores.astype(np.float32)
        scores[~np.logical_and.reduce(boxes[:, 2:] > boxes[:, :2], axis=1)] = np.nan
        if item.parameters.nms:
            scores = drop_duplicates(prediction.boxes, scores, prediction.labels, item)
        selected = select(scores, prediction.labels, item.parameters)
        return Detections(
            labels=list(map(prediction.labels.__getitem__, selected)),
            scores=prediction.scores[selected],
            boxes=boxes[selected],
            keypoints=None if prediction.keypoints is None else prediction.keypoints[selected],
        )

    def targets(
        self, prediction: Detections, filtered: Detections, label: str | None, max_objects: int, /
    ) -> Detections:
        del prediction
        return select_targets(msgspec.structs.replace(filtered, keypoints=None), label, max_objects)

    def similarity(self, targets: Detections, detected: Detections, scale: float, /) -> NDArray[np.float32]:
        return best_match(targets, detected, ious(targets.boxes * np.float32(scale), detected.boxes))
